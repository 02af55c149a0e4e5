"""Arithmetic that operators share: fixed point, float functions, tables, requantization."""
