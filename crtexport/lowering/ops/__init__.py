"""Operators as kernels: the rules that keep a node out, and how it is computed."""
