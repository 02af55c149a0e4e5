"""NonMaxSuppression."""

from __future__ import annotations

import logging

import numpy as np

from crtexport.importers.onnx.node import OnnxNode
from crtexport.importers.onnx.registry import operator
from crtexport.importers.onnx.values import Value
from crtexport.ir.ops import NonMaxSuppression
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

_log = logging.getLogger(__name__)


@operator("NonMaxSuppression", inputs=(2, 5), oldest=10)
def non_max_suppression(node: OnnxNode) -> Value:
    """Returns the selected boxes, int64[rows, 3]. There is the largest possible number of rows,
    which a note says; unused rows are -1."""
    boxes, scores = node.input(0), node.input(1)
    most = int(node.number(2, "the most boxes of a class", 0))
    overlap = node.number(3, "the threshold of overlaps", 0)
    least = {} if node.optional(4) is None else {
        "score_threshold": node.number(4, "the threshold of scores")
    }
    centered = node.integer("center_point_box", 0)
    if len(boxes.shape) != 3 or len(scores.shape) != 3 or not 0 <= overlap <= 1:
        raise CrtExportError(f"boxes {boxes.shape}, scores {scores.shape}, overlaps of {overlap:g}")
    if most < 1 or 0 in (*boxes.shape, *scores.shape):
        return node.constant(np.zeros((0, 3)), DType.INT64)
    op = NonMaxSuppression(most, overlap, centered=bool(centered), **least)
    made = node.emit(op, node.builder.arranged(boxes), node.builder.arranged(scores))
    _log.warning(
        "the output of NonMaxSuppression has %d rows, as many as there can be; those that are "
        "left are -1", made.shape[0],
    )
    return node.cast(made, DType.INT64)
