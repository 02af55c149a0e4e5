"""crtexport: trained networks as static C and LLVM objects for microcontrollers.

Each verb of the command line is a function of this package; ``__all__`` lists them. They are
imported when first used, so that ``import crtexport`` costs nothing and needs no optional package.
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
    from crtexport.verbs import (
        bench,
        boards,
        convert,
        diff,
        doctor,
        inspect,
        plans_of,
        report,
        schema,
        unpack,
    )
    from crtexport.verification import verify, verify_layers

__all__ = [
    "CrtExportError", "InputChoices", "__version__", "bench", "boards", "build", "convert",
    "diff", "doctor", "export", "inspect", "load", "plans_of", "quantize", "report", "run",
    "run_all", "schema", "simulate", "simulate_all", "stage", "unpack", "verify", "verify_layers",
    "write_library",
]

_HOME = {
    "CrtExportError": "crtexport.support.errors",
    "InputChoices": "crtexport.importers.formats",
    "bench": "crtexport.verbs",
    "boards": "crtexport.verbs",
    "build": "crtexport.package_actions",
    "convert": "crtexport.verbs",
    "diff": "crtexport.verbs",
    "doctor": "crtexport.verbs",
    "export": "crtexport.pipeline.driver",
    "inspect": "crtexport.verbs",
    "load": "crtexport.pipeline.driver",
    "plans_of": "crtexport.verbs",
    "quantize": "crtexport.quantization.quantize",
    "report": "crtexport.verbs",
    "run": "crtexport.package_actions",
    "run_all": "crtexport.package_actions",
    "schema": "crtexport.verbs",
    "simulate": "crtexport.package_actions",
    "simulate_all": "crtexport.package_actions",
    "stage": "crtexport.pipeline.driver",
    "unpack": "crtexport.verbs",
    "verify": "crtexport.verification",
    "verify_layers": "crtexport.verification",
    "write_library": "crtexport.package_actions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
