"""Schedules for Arm's Helium (MVE)."""
