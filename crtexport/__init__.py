"""crtexport: trained networks as static C and LLVM objects for microcontrollers."""

__version__ = "0.1.0"
