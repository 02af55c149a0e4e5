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
