"""Exports networks that others have published, and records the results."""
