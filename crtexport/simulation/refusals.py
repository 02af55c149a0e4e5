"""Networks that a reference runtime can't check."""

from __future__ import annotations

import re

from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Svdf
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError


def in_plain_words(refusal: CrtExportError, numerics: Numerics) -> CrtExportError:
    """Returns a runtime's refusal, in plain words if only another runtime has the operator."""
    missing = re.search(r"unresolved custom op: (\w+)", refusal.problem)
    if missing is None or numerics is Numerics.TFLM:
        return refusal
    return CrtExportError(
        f"only TensorFlow Lite Micro has {missing[1]}, so this runtime can't serve as a reference",
        location=refusal.location, hint="compare with --numerics tflm",
    )


def refuse_unknown(graph: Graph) -> None:
    """Refuses networks that the runtimes accept but compute wrong, by reading memory that isn't
    theirs: SVDF with an int8 state, which only TFLite Micro supports."""
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
