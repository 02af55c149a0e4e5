"""Kernels that take the results of a layer as it stores them."""
