"""The operators of ONNX, a module for each family; see :mod:`crtexport.importers.onnx.registry`."""
