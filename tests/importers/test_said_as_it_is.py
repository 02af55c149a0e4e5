"""Mistakes in networks are said as what they are, with what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.tflite_builder import ModelBuilder

Network = Callable[[ModelBuilder], tuple[list[int], list[int]]]


def custom(name: str) -> Network:
    def make(m: ModelBuilder) -> tuple[list[int], list[int]]:
        x, y = m.tensor("x", (1, 4)), m.tensor("y", (1, 4))
        m.op(f"custom:{name}", [x], [y], custom=b"abc")
        return [x], [y]

    return make


def not_a_number(m: ModelBuilder) -> tuple[list[int], list[int]]:
    weights = np.ones((3, 4), np.float32)
    weights[1, 2] = np.nan
    x, w = m.tensor("x", (1, 4)), m.tensor("w", (3, 4), data=weights)
    y = m.tensor("y", (1, 3))
    m.op("FULLY_CONNECTED", [x, w], [y])
    return [x], [y]


def half_not_a_number(m: ModelBuilder) -> tuple[list[int], list[int]]:
    weights = np.ones((3, 4), np.float16)
    weights[0, 3] = np.nan
    x, w = m.tensor("x", (1, 4)), m.tensor("w", (3, 4), "float16", data=weights)
    wide, y = m.tensor("wide", (3, 4)), m.tensor("y", (1, 3))
    m.op("DEQUANTIZE", [w], [wide])
    m.op("FULLY_CONNECTED", [x, wide], [y])
    return [x], [y]


def disordered(m: ModelBuilder) -> tuple[list[int], list[int]]:
    x, a, y = (m.tensor(name, (1, 4)) for name in "xay")
    m.op("ABS", [a], [y])
    m.op("ABS", [x], [a])
    return [x], [y]


def circular(m: ModelBuilder) -> tuple[list[int], list[int]]:
    x, a, c, y = (m.tensor(name, (1, 4)) for name in "xacy")
    m.op("ADD", [y, x], [a])
    m.op("ABS", [a], [c])
    m.op("NEG", [c], [y])
    return [x], [y]


def without_source(m: ModelBuilder) -> tuple[list[int], list[int]]:
    x, a, y = (m.tensor(name, (1, 4)) for name in "xay")
    m.op("ADD", [a, x], [y])
    return [x], [y]


def wrong_shape(m: ModelBuilder) -> tuple[list[int], list[int]]:
    """Its tensors 0 to 2 belong to nothing."""
    for i in range(3):
        m.tensor(f"left over {i}", (1,))
    x, y = m.tensor("x", (1, 4)), m.tensor("y", (1, 5))
    m.op("ABS", [x], [y])
    return [x], [y]


MISTAKES: dict[str, tuple[Network, str]] = {
    "edge tpu": (
        custom("edgetpu-custom-op"), r"compiled for the Edge TPU[^\0]*export the original \.tflite"
    ),
    "flex": (custom("FlexErf"), r"'FlexErf' is an operator of TensorFlow[^\0]*SELECT_TF_OPS"),
    "nan": (not_a_number, r"element \[1, 2\] of 'w' \(float32\[3x4\]\) is NaN"),
    "nan of float16": (
        half_not_a_number, r"element \[0, 3\] of 'w' \(float16\[3x4\]\) is NaN"
    ),
    "order": (disordered, r"tensor 1 'a' is used before .* operator 1 \(ABS\) computes it later"),
    "cycle": (
        circular,
        r"tensor 3 'y' depends on this .* through operator 2 \(NEG\) → operator 1 \(ABS\): a cycle",
    ),
    "no source": (without_source, "input 0: tensor 1 'a' is computed by nothing"),
    "number in the file": (wrong_shape, r"tensor 4 'y' is float32\[1x5\]"),
}


@pytest.mark.parametrize(("network", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_said_as_what_it_is(
    network: Network, message: str, tmp_path: Path
) -> None:
    m = ModelBuilder()
    (tmp_path / "m.tflite").write_bytes(m.build(*network(m)))
    with pytest.raises(CrtExportError) as caught:
        load(tmp_path / "m.tflite")
    caught.match(message)


def test_an_input_that_nothing_uses_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    m = ModelBuilder()
    x, z, y = (m.tensor(name, (1, 4)) for name in "xzy")
    m.op("ABS", [x], [y])
    (tmp_path / "m.tflite").write_bytes(m.build([x, z], [y]))
    with caplog.at_level(logging.WARNING, "crtexport"):
        load(tmp_path / "m.tflite")
    assert caplog.messages == ["m.tflite: nothing uses the input 'z'"]


def test_a_saved_model_is_known(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    with pytest.raises(CrtExportError) as caught:
        load(tmp_path)
    caught.match(r"this is a TensorFlow SavedModel[^\0]*from_saved_model")


NETWORK: dict[str, Any] = {
    "format": "crtexport-model", "version": 1, "inputs": ["x"], "outputs": ["y"],
    "tensors": [{"name": n, "dtype": "float32", "shape": [1, 4]} for n in "xy"],
    "nodes": [{"op": "Abs", "inputs": ["x"], "outputs": ["y"]}],
}


@pytest.mark.parametrize(("given", "changed", "message"), [
    ('"op": "Abs"', '"op": "FULLY_CONNECTED"', r"did you mean 'FullyConnected'\?"),
    ('"op": "Abs"', '"op": "Neg", "op": "Abs"', "the key 'op' is twice in one object"),
    ('["y"]}]', '["y"], "outputs": ["y"]}]', "the key 'outputs' is twice in one object"),
    ("[1, 4]", "[null, 4]", r"shape\[0\]: the size is open \(null\)[^\0]*write 1 for the batch"),
])
def test_mistakes_in_json_are_said(
    given: str, changed: str, message: str, tmp_path: Path
) -> None:
    text = json.dumps(NETWORK)
    path = tmp_path / "model.json"
    path.write_text(text)
    load(path)
    path.write_text(text.replace(given, changed))
    with pytest.raises(CrtExportError) as caught:
        load(path)
    caught.match(message)
