"""Kernels shaped for an instruction set: the same results, with other speed and size."""
