"""Schedules for processors without vectors: Cortex-M to M33, RISC-V, and unknown ones."""
