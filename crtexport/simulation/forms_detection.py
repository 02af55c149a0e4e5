"""TensorFlow Lite's encoding of the custom operator at the end of object detectors."""

from __future__ import annotations

from collections.abc import Mapping

from flatbuffers import flexbuffers

from crtexport.ir.ops import DetectionPostProcess, Op
from crtexport.simulation.tflite_form import Former, TfliteForm, by_operator


def _detection(op: DetectionPostProcess) -> TfliteForm:
    y, x, h, w = op.scale_yxhw
    options = flexbuffers.Dumps({
        "max_detections": op.max_detections, "num_classes": op.num_classes,
        "max_classes_per_detection": op.max_classes_per_detection,
        "detections_per_class": op.detections_per_class, "use_regular_nms": op.regular_nms,
        "nms_score_threshold": op.score_threshold, "nms_iou_threshold": op.iou_threshold,
        "y_scale": y, "x_scale": x, "h_scale": h, "w_scale": w,
    })
    return TfliteForm("custom:TFLite_Detection_PostProcess", custom_options=bytes(options))


FORMERS: Mapping[type[Op], Former] = {DetectionPostProcess: by_operator(_detection)}
