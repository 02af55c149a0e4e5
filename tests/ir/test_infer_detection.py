"""Output types of the operator at the end of object detectors, and what is said about bad ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from crtexport.ir.infer import infer
from crtexport.ir.ops import DetectionPostProcess
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

OP = DetectionPostProcess(
    max_detections=5, num_classes=3, score_threshold=0.3, iou_threshold=0.5,
    scale_yxhw=(10.0, 10.0, 5.0, 5.0), max_classes_per_detection=2,
)


def inputs(
    boxes: tuple[int, ...] = (1, 7, 4), scores: tuple[int, ...] = (1, 7, 4),
    anchors: tuple[int, ...] = (7, 4),
) -> tuple[TensorType, ...]:
    return tuple(TensorType(DType.UINT8, shape) for shape in (boxes, scores, anchors))


@pytest.mark.parametrize("classes", [3, 4])
def test_there_is_room_for_every_class_of_every_detection(classes: int) -> None:
    found = infer(OP, inputs(scores=(1, 7, classes)))
    assert [t.shape for t in found] == [(1, 10, 4), (1, 10), (1, 10), (1,)]
    assert {t.dtype for t in found} == {DType.FLOAT32}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"boxes": (2, 7, 4)}, r"boxes must be \(1, N, 4 or more\), found uint8\[2x7x4\]"),
        ({"boxes": (1, 7, 3)}, r"boxes must be \(1, N, 4 or more\)"),
        ({"scores": (1, 7, 5)}, r"scores must be \(1, 7, 3 or, with the background, 4\)"),
        ({"scores": (1, 6, 4)}, "scores must be"),
        ({"anchors": (7, 5)}, r"anchors must be \(7, 4\)"),
    ],
)
def test_shapes_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        infer(OP, inputs(**changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_detections": 0}, "max_detections must be at least 1, found 0"),
        ({"detections_per_class": -1}, "detections_per_class must be at least 1"),
        ({"iou_threshold": 0.0}, "iou_threshold must be above 0 and at most 1, found 0.0"),
        ({"iou_threshold": float("nan")}, "iou_threshold must be"),
        ({"score_threshold": float("inf")}, "score_threshold must be finite"),
        ({"scale_yxhw": (1.0, 1.0, 0.0, 1.0)}, "scale_yxhw must be 4 positive numbers"),
        ({"scale_yxhw": (1.0, 1.0)}, "scale_yxhw must be 4 positive numbers"),
    ],
)
def test_attributes_that_make_no_sense(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        infer(replace(OP, **changed), inputs())
