"""Kernels that compute further operators with the results of a layer, instead of storing these."""
