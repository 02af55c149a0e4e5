"""The classes that ``tflite`` generated from TensorFlow Lite's schema, each loaded when it is asked
for: ``schema.Model``.

The package imports all of its 187 modules at once, which takes longer than reading a network. They
need neither the package nor, but for the tables below, each other; who imports the package later
gets the whole of it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from typing import Any

_TABLES = (
    "Buffer", "CustomQuantization", "Metadata", "Operator", "OperatorCode",
    "QuantizationParameters", "SignatureDef", "SubGraph", "Tensor", "TensorMap",
)
"""What others hand out: they import these by their names in the package."""


def __getattr__(name: str) -> Any:
    return _loaded(name)


def options_code(name: str) -> int:
    """What says in a file that an operator's options are the table of that name."""
    code: int = getattr(_loaded("BuiltinOptions"), name)
    return code


def table(name: str) -> Any:
    """An accessor of tables of that name, which is nowhere yet."""
    return _loaded(name)()


def _loaded(name: str) -> Any:
    whole = f"tflite.{name}"
    if whole not in sys.modules:
        package = importlib.util.find_spec("tflite")
        folders = package.submodule_search_locations if package is not None else None
        spec = PathFinder.find_spec(whole, folders)
        if spec is None or spec.loader is None:
            raise AttributeError(f"TensorFlow Lite's schema has no {name}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules.setdefault(whole, module)
    return getattr(sys.modules[whole], name)


for _name in _TABLES:
    _loaded(_name)
