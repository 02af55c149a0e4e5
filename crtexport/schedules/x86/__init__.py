"""Schedules for x86-64: SSE, AVX2, AVX-VNNI."""
