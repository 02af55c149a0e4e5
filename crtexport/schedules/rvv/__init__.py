"""Schedules for RISC-V's vectors."""
