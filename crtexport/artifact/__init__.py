"""A model as data for linking: kernels, constants, calls, interface, registry."""
