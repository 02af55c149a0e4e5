"""crtexport: trained networks as static C and LLVM objects for microcontrollers.

The public verbs are functions of this package: :func:`load`, :func:`export`, :func:`stage`,
:func:`simulate`, :func:`simulate_all`, :func:`build`, :func:`write_library`, :func:`run`,
:func:`run_all`, :func:`verify`, :func:`verify_layers` and :func:`quantize`;
:class:`InputChoices` fix what an ONNX file leaves open. They are imported when first used, so that
``import crtexport`` costs nothing and needs no optional package.
What users can do wrong raises :class:`CrtExportError`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from crtexport.version import __version__

if TYPE_CHECKING:
    from crtexport.importers.formats import InputChoices
    from crtexport.package_actions import build, run, run_all, simulate, simulate_all, write_library
    from crtexport.pipeline.driver import export, load, stage
    from crtexport.quantization.quantize import quantize
    from crtexport.support.errors import CrtExportError
    from crtexport.verification import verify, verify_layers

__all__ = [
    "CrtExportError", "InputChoices", "__version__", "build", "export", "load", "quantize", "run",
    "run_all", "simulate", "simulate_all", "stage", "verify", "verify_layers", "write_library",
]

_HOME = {
    "CrtExportError": "crtexport.support.errors",
    "InputChoices": "crtexport.importers.formats",
    "build": "crtexport.package_actions",
    "export": "crtexport.pipeline.driver",
    "load": "crtexport.pipeline.driver",
    "quantize": "crtexport.quantization.quantize",
    "run": "crtexport.package_actions",
    "run_all": "crtexport.package_actions",
    "simulate": "crtexport.package_actions",
    "simulate_all": "crtexport.package_actions",
    "stage": "crtexport.pipeline.driver",
    "verify": "crtexport.verification",
    "verify_layers": "crtexport.verification",
    "write_library": "crtexport.package_actions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
