"""Networks that a reference runtime can't serve for."""

from __future__ import annotations

import re

from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Svdf
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


def in_plain_words(refusal: CrtExportError, numerics: Numerics) -> CrtExportError:
    """Returns a runtime's refusal, for an operator that only another runtime has in plain words."""
    missing = re.search(r"unresolved custom op: (\w+)", refusal.problem)
    if missing is None or numerics is Numerics.TFLM:
        return refusal
    return CrtExportError(
        f"only TensorFlow Lite Micro has {missing[1]}, so this runtime can't serve as a reference",
        location=refusal.location, hint="compare with --numerics tflm",
    )


def refuse_unknown(graph: Graph) -> None:
    """Refuses what the runtimes take and compute with memory that isn't its own: SVDF with an int8
    state, which only TFLite Micro has."""
    for inner in graph.nested() if graph.numerics is not Numerics.TFLM else ():
        for node in inner.nodes:
            if not isinstance(node.op, Svdf):
                continue
            if inner.type(inner.required(node, 3)).dtype is DType.INT8:
                raise CrtExportError(
                    "only TensorFlow Lite Micro has SVDF with an int8 state, so this runtime can't"
                    " serve as a reference",
                    location=(graph.source, str(node)), hint="compare with --numerics tflm",
                )
