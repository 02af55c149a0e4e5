"""The domains of ONNX operators: the sets that their names belong to."""

from __future__ import annotations

ONNX = ""
"""The domain of the standard's own operators, which files call "ai.onnx", too."""
MICROSOFT = "com.microsoft"
LEARNING = "ai.onnx.ml"
PREVIEW = "ai.onnx.preview"


def domain_of(name: str) -> str:
    """Returns the domain that a file calls ``name``."""
    return ONNX if name == "ai.onnx" else name
