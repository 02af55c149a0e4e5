"""crtexport: trained networks as static C and LLVM objects for microcontrollers.

The public verbs are functions of this package: :func:`load`, :func:`export`, :func:`stage`,
:func:`simulate`, :func:`simulate_all`, :func:`build`, :func:`run`, :func:`run_all`, :func:`verify`
and :func:`verify_layers`. They are imported when first used, so that ``import crtexport`` costs
nothing and needs no optional package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crtexport.actions import build, run, run_all, simulate, simulate_all
    from crtexport.compare import verify, verify_layers
    from crtexport.pipeline import export, load, stage

__version__ = "0.1.0"
__all__ = [
    "build", "export", "load", "run", "run_all", "simulate", "simulate_all", "stage", "verify",
    "verify_layers",
]

_HOME = {
    "build": "crtexport.actions",
    "export": "crtexport.pipeline",
    "load": "crtexport.pipeline",
    "run": "crtexport.actions",
    "run_all": "crtexport.actions",
    "simulate": "crtexport.actions",
    "simulate_all": "crtexport.actions",
    "stage": "crtexport.pipeline",
    "verify": "crtexport.compare",
    "verify_layers": "crtexport.compare",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
