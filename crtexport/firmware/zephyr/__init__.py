"""Zephyr: boards derived from builds, applications around packages, and what built images take."""
