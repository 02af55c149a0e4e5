"""Artifacts as C99 sources."""
