"""The custom operator at the end of object detectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.differential.draw import Array, Case, Draw
from tests.tflite_builder import ModelBuilder

NAME = "TFLite_Detection_PostProcess"


def options(**changed: Any) -> dict[str, Any]:
    """Returns what TensorFlow's object detection writes, changed."""
    return {
        "max_detections": 5, "max_classes_per_detection": 1, "detections_per_class": 100,
        "use_regular_nms": False, "nms_score_threshold": 0.2, "nms_iou_threshold": 0.5,
        "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        **changed,
    }


def network(
    given: dict[str, Any], boxes: Array, scores: Array, anchors: Array,
    scales: tuple[float, float, float] = (0.1, 1 / 256, 1 / 256),
) -> bytes:
    """A file with the operator alone; uint8 arrays get these scales."""
    m = ModelBuilder()
    zeros = (128, 0, 0)
    x, s, a = (
        m.tensor(
            name, array.shape, array.dtype.name,
            **({"scale": scale, "zero_point": zero} if array.dtype == np.uint8 else {}),
            data=array if name == "anchors" else None,
        )
        for name, array, scale, zero in zip(
            ("boxes", "scores", "anchors"), (boxes, scores, anchors), scales, zeros, strict=True
        )
    )
    found = given["max_detections"] * given["max_classes_per_detection"]
    outputs = [
        m.tensor(f"y{i}", shape)
        for i, shape in enumerate([(1, found, 4), (1, found), (1, found), (1,)])
    ]
    m.op(f"custom:{NAME}", [x, s, a], outputs, custom=bytes(flexbuffers.Dumps(given)))
    return m.build([x, s], outputs)


def arrays(
    draw: Draw, dtype: str, count: int, classes: int, background: int, width: int = 4
) -> tuple[Array, Array, Array]:
    """Boxes that crowd, scores without equals, and anchors."""
    rng = np.random.default_rng(draw.integer(0, 2**31))
    shape = (1, count, classes + background)
    if dtype == "uint8":
        boxes = rng.integers(100, 156, (1, count, width)).astype(np.uint8)
        scores = rng.permutation(256)[: int(np.prod(shape))].reshape(shape).astype(np.uint8)
        return boxes, scores, rng.integers(60, 190, (count, 4)).astype(np.uint8)
    boxes = rng.normal(0, 2, (1, count, width)).astype(np.float32)
    scores = rng.uniform(0, 1, shape).astype(np.float32)
    anchors = rng.uniform(0.2, 0.7, (count, 4)).astype(np.float32)
    return boxes, scores, anchors


def detection_post_process(draw: Draw, dtype: str) -> Case:
    """Regular suppression, or a fast one that finds as many boxes as there is room for: beyond
    those, the runtime's output is whatever was in its memory."""
    count, classes = draw.integer(1, 20), draw.integer(1, 5)
    background, regular = draw.integer(0, 1), bool(draw.choice([True, False]))
    most = draw.integer(1, 8) if regular else draw.integer(1, min(count, 6))
    given = options(
        max_detections=most, num_classes=classes, use_regular_nms=regular,
        nms_iou_threshold=draw.choice([0.1, 0.3, 0.6]), detections_per_class=draw.integer(1, 4),
        nms_score_threshold=draw.choice([0.0, 0.3, 0.8]),
    )
    if not regular:
        ranks = draw.integer(1, classes)
        given |= {
            "nms_iou_threshold": 1.0, "nms_score_threshold": -1.0,
            "max_classes_per_detection": ranks,
        }
    boxes, scores, anchors = arrays(
        draw, dtype, count, classes, background, draw.choice([4, 4, 6])
    )
    return Case(network(given, boxes, scores, anchors), (boxes, scores))


CASES: dict[str, Callable[[Draw, str], Case]] = {"detection_post_process": detection_post_process}
DTYPES: dict[str, tuple[str, ...]] = {"detection_post_process": ("float32", "uint8")}
