"""Cascades: networks that flow through in rows instead of one whole tensor after another."""
