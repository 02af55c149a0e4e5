"""Choosing layers to compute row by row, and how many rows at once."""
