"""The time that programs on boards and in emulators get. Without imports, for help texts."""

DEFAULT_TIMEOUT = 120.0
"""Seconds that one boot may take."""
