"""Postprocessing of object detectors."""

from __future__ import annotations

import math

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import DetectionPostProcess, NonMaxSuppression
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

_F32 = DType.FLOAT32


@infers(DetectionPostProcess, required=3)
def detection(op: DetectionPostProcess, inputs: InputTypes) -> tuple[TensorType, ...]:
    boxes, scores, anchors = inputs[0], inputs[1], inputs[2]
    _check_attributes(op)
    if len(boxes.shape) != 3 or boxes.shape[0] != 1 or boxes.shape[1] < 1 or boxes.shape[2] < 4:
        raise CrtExportError(f"boxes must be (1, N, 4 or more), found {boxes}")
    count = boxes.shape[1]
    classes = (op.num_classes, op.num_classes + 1)
    if len(scores.shape) != 3 or scores.shape[:2] != (1, count) or scores.shape[2] not in classes:
        raise CrtExportError(
            f"scores must be (1, {count}, {classes[0]} or, with the background, {classes[1]}),"
            f" found {scores}"
        )
    if anchors.shape != (count, 4):
        raise CrtExportError(f"anchors must be ({count}, 4), found {anchors}")
    found = op.max_detections * op.max_classes_per_detection
    return (
        TensorType(_F32, (1, found, 4)), TensorType(_F32, (1, found)),
        TensorType(_F32, (1, found)), TensorType(_F32, (1,)),
    )


@infers(NonMaxSuppression, required=2)
def non_max_suppression(op: NonMaxSuppression, inputs: InputTypes) -> tuple[TensorType, ...]:
    boxes, scores = inputs[0], inputs[1]
    if len(boxes.shape) != 3 or boxes.shape[2] != 4 or 0 in boxes.shape:
        raise CrtExportError(f"boxes must be (batch, N, 4), found {boxes}")
    batch, count, _ = boxes.shape
    if len(scores.shape) != 3 or (scores.shape[0], scores.shape[2]) != (batch, count):
        raise CrtExportError(f"scores must be ({batch}, classes, {count}), found {scores}")
    if op.most_per_class < 1:
        raise CrtExportError(f"most_per_class must be at least 1, found {op.most_per_class}")
    for name, threshold in (("iou", op.iou_threshold), ("score", op.score_threshold)):
        if not math.isfinite(threshold):
            raise CrtExportError(f"{name}_threshold must be finite, found {threshold}")
    rows = batch * scores.shape[1] * min(op.most_per_class, count)
    return (TensorType(DType.INT32, (rows, 3)),)


def _check_attributes(op: DetectionPostProcess) -> None:
    counts = {
        "max_detections": op.max_detections, "num_classes": op.num_classes,
        "max_classes_per_detection": op.max_classes_per_detection,
        "detections_per_class": op.detections_per_class,
    }
    for name, count in counts.items():
        if count < 1:
            raise CrtExportError(f"{name} must be at least 1, found {count}")
    if not 0 < op.iou_threshold <= 1:
        raise CrtExportError(
            f"iou_threshold must be above 0 and at most 1, found {op.iou_threshold}"
        )
    if not math.isfinite(op.score_threshold):
        raise CrtExportError(f"score_threshold must be finite, found {op.score_threshold}")
    if len(op.scale_yxhw) != 4 or not all(s > 0 and math.isfinite(s) for s in op.scale_yxhw):
        raise CrtExportError(
            f"scale_yxhw must be 4 positive numbers, found {list(op.scale_yxhw)}"
        )
