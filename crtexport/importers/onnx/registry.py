"""The table of ONNX operators that can be read: one function each, in ``operators/``.

A function gets its node (:class:`crtexport.importers.onnx.node.OnnxNode`), adds operators of the
Graph, and returns the value of its output, or of all outputs. Types and shapes follow from what it
adds. ::

    @operator("Relu")
    def relu(node: OnnxNode) -> Value:
        return node.unary(Relu(), node.input(0))
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from crtexport.importers.onnx.domains import ONNX
from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.values import Value
from crtexport.support.errors import CrtExportError

Result = Value | Sequence[Value | None]
Reader = Callable[[OnnxNode], Result]

FAMILIES = (
    "activation",
    "attention",
    "bits",
    "block_weights",
    "blocks",
    "compare",
    "constants",
    "control",
    "convolution",
    "deform",
    "detection",
    "elementwise",
    "gather",
    "learning",
    "linear_attention",
    "losses",
    "matmul",
    "move",
    "normalization",
    "pool",
    "quantized",
    "recurrent",
    "reduce",
    "resize",
    "sample",
    "scatter",
    "shape",
    "signal",
    "tree",
    "trigonometry",
    "vectors",
    "whole_products",
)
"""The modules of ``operators/``."""


class OperatorReader(Struct, frozen=True):
    """One row: the function, and the least and the largest number of inputs (None: any).

    ``image``: it takes an image whose channels are last in kernels, which is what
    ``--input-layout nhwc`` looks for. ``follows``: its first output has the axes of its first
    input, so that an image stays one. ``oldest``: the first opset whose meaning is read.
    """

    name: str
    domain: str
    read: Reader
    inputs: tuple[int, int | None]
    image: bool = False
    follows: bool = False
    oldest: int = 6


TABLE: dict[tuple[str, str], OperatorReader] = {}
"""The operators by domain and name; filled by :func:`load_table`."""

IMPOSSIBLE: Mapping[str, str] = {
    **dict.fromkeys(
        ("NonZero", "Unique", "Compress", "TfIdfVectorizer"),
        "the shape of its output depends on data, and all memory is planned beforehand",
    ),
    **dict.fromkeys(
        ("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
         "SequenceLength", "SequenceMap", "SplitToSequence", "ConcatFromSequence"),
        "sequences have no fixed size",
    ),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "ImageDecoder"),
        "strings and encoded images have no fixed size",
    ),
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
         "RandomUniformLike"),
        "random numbers are not supported",
    ),
    **dict.fromkeys(("Adagrad", "Adam", "Momentum", "Gradient"), "it belongs to training"),
}
"""Operators of the standard that no microcontroller can have, and why."""


def operator(
    *names: str, domain: str = ONNX, inputs: tuple[int, int | None] = (1, 1),
    image: bool = False, follows: bool = False, oldest: int = 6,
) -> Callable[[Reader], Reader]:
    """Registers a function that reads the operators ``names``; see :class:`OperatorReader`."""

    def register(read: Reader) -> Reader:
        for name in names:
            if (domain, name) in TABLE:
                raise ValueError(f"{name} is read by two functions")
            TABLE[domain, name] = OperatorReader(
                name, domain, read, inputs, image, follows, oldest if domain == ONNX else 1
            )
        return read

    return register


def load_table() -> None:
    """Imports all families."""
    for family in FAMILIES:
        importlib.import_module(f"crtexport.importers.onnx.operators.{family}")


def find(domain: str, name: str) -> OperatorReader | None:
    """Returns the row of an operator; None where there is none."""
    return TABLE.get((domain, name))


def unknown(domain: str, name: str, version: int) -> CrtExportError:
    """Returns the error for an operator that isn't in the table."""
    where = f"of domain {domain}, " if domain else ""
    problem = f"{name} {where}opset {version}: "
    if domain == ONNX and name in IMPOSSIBLE:
        return CrtExportError(problem + IMPOSSIBLE[name])
    names = [known for (of, known) in TABLE if of == domain] or [known for _, known in TABLE]
    near = difflib.get_close_matches(name, names, 3, 0.6)
    return CrtExportError(
        problem + "the operator is not supported",
        hint=f"nearest: {', '.join(near)}" if near else None,
    )
