"""Zephyr: boards derived from builds, applications around packages, and reports on built images."""
