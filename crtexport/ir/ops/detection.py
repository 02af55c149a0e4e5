"""Postprocessing of object detectors."""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class DetectionPostProcess(Op, frozen=True):
    """Non-maximum suppression: the best of overlapping boxes with their classes, scores and number,
    from encoded boxes (1,N,4 or more), scores (1,N,classes) and anchors (N,4)."""

    max_detections: int
    num_classes: int
    score_threshold: float
    iou_threshold: float
    scale_yxhw: tuple[float, float, float, float]
    max_classes_per_detection: int = 1
    detections_per_class: int = 100
    regular_nms: bool = False


class NonMaxSuppression(Op, frozen=True):
    """The best of overlapping boxes (batch, N, 4) for each class of scores (batch, classes, N), as
    many as there are, of int32: rows (batch, class, box), the best box of a class first. Rows that
    are left are -1. Boxes are two opposite corners, or with ``centered`` middle and size; only
    scores above the threshold count, and boxes that overlap a better one by more are left out."""

    most_per_class: int
    iou_threshold: float = 0.0
    score_threshold: float = -3.4028234663852886e38
    centered: bool = False
