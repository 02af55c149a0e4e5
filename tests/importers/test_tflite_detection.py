"""The custom operator at the end of object detectors: its options are a map in a flexbuffer."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from flatbuffers import flexbuffers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.ops import DetectionPostProcess
from crtexport.support.errors import CrtExportError
from tests.differential.cases_detection import NAME, options
from tests.tflite_builder import ModelBuilder

PLAIN = DetectionPostProcess(
    max_detections=5, num_classes=3, score_threshold=0.25, iou_threshold=0.5,
    scale_yxhw=(10.0, 10.0, 5.0, 5.0),
)


def imported(folder: Path, custom: bytes, name: str = NAME) -> Graph:
    m = ModelBuilder()
    inputs = [m.tensor(n, s) for n, s in (("b", (1, 7, 4)), ("s", (1, 7, 4)), ("a", (7, 4)))]
    shapes = ((1, 5, 4), (1, 5), (1, 5), (1,))
    outputs = [m.tensor(f"y{i}", shape) for i, shape in enumerate(shapes)]
    m.op(f"custom:{name}", inputs, outputs, custom=custom)
    path = folder / "detector.tflite"
    path.write_bytes(m.build(inputs, outputs))
    return load(path)


def written(**changed: Any) -> bytes:
    chosen = options(nms_score_threshold=0.25, **changed)
    return bytes(flexbuffers.Dumps({k: v for k, v in chosen.items() if v is not None}))


def test_options_become_attributes(tmp_path: Path) -> None:
    graph = imported(tmp_path, written())
    assert [node.op for node in graph.nodes] == [PLAIN]
    assert graph.nodes[0].origin == f"operator 0 (custom {NAME!r})"


def test_some_options_have_defaults(tmp_path: Path) -> None:
    custom = written(detections_per_class=None, use_regular_nms=None)
    assert [node.op for node in imported(tmp_path, custom).nodes] == [PLAIN]


def test_a_missing_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="the options have no num_classes"):
        imported(tmp_path, written(num_classes=None))


@pytest.mark.parametrize("custom", [b"", b"\x00", bytes(1 << 17)])
def test_no_map_at_all(custom: bytes, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="bytes of options are no map of numbers"):
        imported(tmp_path, custom)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 400), value=st.integers(0, 255), cut=st.integers(0, 40))
def test_damaged_options_give_clean_errors(
    at: int, value: int, cut: int, tmp_path: Path
) -> None:
    custom = bytearray(written())
    custom[at % len(custom)] = value
    with contextlib.suppress(CrtExportError):
        imported(tmp_path, bytes(custom[cut:]))


def test_other_custom_operators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="custom 'Detect': operator 0") as caught:
        imported(tmp_path, written(), "Detect")
    assert NAME in str(caught.value)
