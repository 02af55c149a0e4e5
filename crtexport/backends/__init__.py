"""Artifacts as text and bits: C99 sources, and LLVM modules compiled to objects.

Nothing here knows neural networks. The C printers (``c/``) and the LLVM printers (``llvm/``) do not
know each other; what both must agree on is in :mod:`crtexport.artifact`.

A program that has an :class:`~crtexport.artifact.model.Artifact`
(``crtexport.pipeline.driver.prepare`` makes one) gets its code from

* :func:`emit_c` and :func:`emit_header`: C99 sources and the header, as text by file name;
* :func:`llvm_modules`: LLVM IR, split into modules or not;
* :func:`compile_modules`: any LLVM IR to objects, in parallel, under any of LLVM's options;
* :func:`constants_object`: the constants that objects refer to, as an object of any size;
* :class:`Compiler`: both steps for one target and one set of options, for any number of artifacts.

All are deterministic and may be called from several threads at the same time; LLVM runs in worker
processes. They are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crtexport.backends.c.header import emit_header
    from crtexport.backends.c.source import emit_c
    from crtexport.backends.constants import constants_object
    from crtexport.backends.llvm.compile import Compiler, compile_modules
    from crtexport.backends.llvm.module import llvm_modules

__all__ = [
    "Compiler", "compile_modules", "constants_object", "emit_c", "emit_header", "llvm_modules",
]

_HOME = {
    "Compiler": "crtexport.backends.llvm.compile",
    "compile_modules": "crtexport.backends.llvm.compile",
    "constants_object": "crtexport.backends.constants",
    "emit_c": "crtexport.backends.c.source",
    "emit_header": "crtexport.backends.c.header",
    "llvm_modules": "crtexport.backends.llvm.module",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
