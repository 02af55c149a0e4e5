"""Suppression that leaves room in the output, and equals, which the general cases leave out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.cases_detection import arrays, network, options
from tests.differential.draw import Array, SeededDraw
from tests.differential.network import interpret
from tests.tflite_builder import run_reference


def found(folder: Path, content: bytes, *inputs: Array) -> list[Array]:
    path = folder / "detection.tflite"
    path.write_bytes(content)
    return interpret(load(path), inputs)


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("seed", range(6))
def test_fast_suppression(seed: int, dtype: str, threshold: float, tmp_path: Path) -> None:
    draw = SeededDraw(seed)
    given = options(nms_iou_threshold=threshold, nms_score_threshold=0.4, max_detections=10)
    boxes, scores, anchors = arrays(draw, dtype, 24, 3, 1)
    content = network(given, boxes, scores, anchors)
    ours = found(tmp_path, content, boxes, scores)
    theirs = run_reference(content, boxes, scores)
    number = int(theirs[3][0])
    assert ours[3].tolist() == [number]
    for mine, other in zip(ours[:3], theirs[:3], strict=True):
        np.testing.assert_allclose(mine[0, :number], other[0, :number], rtol=0, atol=1e-5)
        assert not mine[0, number:].any()


def test_regular_suppression_has_room_for_scores_below_0(tmp_path: Path) -> None:
    boxes, scores, anchors = arrays(SeededDraw(3), "float32", 6, 2, 0)
    scores -= 1
    given = options(
        num_classes=2, use_regular_nms=True, nms_score_threshold=-2.0, max_detections=4
    )
    content = network(given, boxes, scores, anchors)
    ours = found(tmp_path, content, boxes, scores)
    theirs = run_reference(content, boxes, scores)
    assert ours[3] == theirs[3] == 4
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("regular", [False, True])
def test_of_equals_the_first_counts(regular: bool, tmp_path: Path) -> None:
    boxes = np.zeros((1, 3, 4), np.float32)
    anchors = np.array([[i, i, 0.5, 0.5] for i in range(3)], np.float32)
    scores = np.full((1, 3, 2), 0.5, np.float32)
    given = options(num_classes=2, max_detections=2, use_regular_nms=regular)
    content = network(given, boxes, scores, anchors)
    where, classes, given_scores, number = found(tmp_path, content, boxes, scores)
    assert where[0, :, 0].tolist() == [-0.25, 0.75]
    assert classes.tolist() == [[0, 0]]
    assert given_scores.tolist() == [[0.5, 0.5]]
    assert number.tolist() == [2]


def test_nothing_is_found(tmp_path: Path) -> None:
    boxes, scores, anchors = arrays(SeededDraw(1), "float32", 5, 3, 0)
    for regular in (False, True):
        given = options(nms_score_threshold=2.0, use_regular_nms=regular)
        content = network(given, boxes, scores, anchors)
        assert not any(output.any() for output in found(tmp_path, content, boxes, scores))
