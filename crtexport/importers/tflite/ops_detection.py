"""The custom operator at the end of object detectors; its options are a flexbuffer."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from crtexport.importers.tflite.operators import Decoded, Decoder, SourceOperator
from crtexport.ir.ops import DetectionPostProcess
from crtexport.support.errors import CrtExportError

T = TypeVar("T")

_BROKEN = (struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError)
_DETECTIONS_PER_CLASS = 100  # where the file says nothing
_WIDEST = 1 << 16
"""An upper bound of the bytes of valid options."""


def _detection(source: SourceOperator) -> Decoded:
    options = Options(source)
    op = DetectionPostProcess(
        max_detections=options.integer("max_detections"),
        num_classes=options.integer("num_classes"),
        score_threshold=options.number("nms_score_threshold"),
        iou_threshold=options.number("nms_iou_threshold"),
        scale_yxhw=(
            options.number("y_scale"), options.number("x_scale"), options.number("h_scale"),
            options.number("w_scale"),
        ),
        max_classes_per_detection=options.integer("max_classes_per_detection"),
        detections_per_class=options.integer("detections_per_class", _DETECTIONS_PER_CLASS),
        regular_nms=bool(options.integer("use_regular_nms", 0)),
    )
    return op, source.inputs


class Options:
    """The map of a custom operator's options, of which nothing can be trusted."""

    def __init__(self, source: SourceOperator) -> None:
        from flatbuffers import flexbuffers  # noqa: PLC0415

        content = source.table.custom_options
        if not 3 <= len(content) <= _WIDEST:
            raise CrtExportError(f"{len(content)} bytes of options are no map of numbers")
        self._map: Any = _read(lambda: flexbuffers.GetRoot(content).AsMap)

    def _value(self, key: str) -> Any:
        """Returns None where the map has no such key."""
        def find() -> Any:
            try:
                return self._map[key]
            except KeyError:
                return None

        return _read(find)

    def integer(self, key: str, default: int | None = None) -> int:
        found = self._value(key)
        if found is None or _read(lambda: found.IsNull):
            if default is None:
                raise CrtExportError(f"the options have no {key}")
            return default
        return int(_read(lambda: found.AsInt))

    def number(self, key: str) -> float:
        found = self._value(key)
        if found is None:
            raise CrtExportError(f"the options have no {key}")
        return float(_read(lambda: found.AsFloat))


def _read(get: Callable[[], T]) -> T:
    try:
        return get()
    except _BROKEN as error:
        raise CrtExportError(f"the options are damaged: {error}") from error


CUSTOM_DECODERS: Mapping[str, Decoder] = {"TFLite_Detection_PostProcess": _detection}
"""By the name of the custom operator."""
