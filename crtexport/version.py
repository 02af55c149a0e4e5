"""The version of this package, which packages name as their generator."""

__version__ = "0.1.0"
