"""Artifacts as text and bits: C99 sources, and LLVM modules compiled to objects.

No neural-network word in here. The C printers (``c_*``) and the LLVM printers (``llvm_*``) do not
know each other; what both must agree on is in :mod:`crtexport.artifact`.
"""
