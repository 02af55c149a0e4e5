"""What a model is to a linker: kernels, constants, calls, interface, registry; as data."""
