"""Nodes that the workspace is largest for take kernels with less memory, where that is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.pipeline import scratch_policy
from crtexport.pipeline.driver import prepare
from crtexport.pipeline.result import Prepared
from crtexport.schedules.select.choose import ByEstimate
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.variants import variants_of
from tests.differential.network import interpret
from tests.lowered import run
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
DEPTH, INNER, LAYERS = 512, 128, 8


def dense(m: ModelBuilder, rng: np.random.Generator, x: int, depth: int, units: int) -> int:
    """Adds a fully connected layer with drawn weights; returns its result."""
    name = f"{x}_{units}"
    weights = rng.integers(-127, 128, (units, depth))
    w = m.tensor(f"w{name}", (units, depth), "int8", scale=0.01, data=weights)
    bias = rng.integers(-500, 500, units)
    b = m.tensor(f"b{name}", (units,), "int32", scale=0.0005, data=bias)
    y = m.tensor(f"y{name}", (1, units), "int8", scale=0.4, zero_point=3)
    m.op("FULLY_CONNECTED", [x, w, b], [y])
    return y


def autoencoder(path: Path, *, layers: int = LAYERS, width: int = INNER) -> Path:
    """Writes a network whose first layer reads far more values than any other."""
    m, rng = ModelBuilder(), np.random.default_rng(8)
    x = m.tensor("x", (1, DEPTH), "int8", scale=0.05, zero_point=-3)
    y = dense(m, rng, x, DEPTH, width)
    for _ in range(layers):
        y = dense(m, rng, y, width, width)
    path.write_bytes(m.build([x], [y]))
    return path


def prepared(path: Path, **changes: Any) -> Prepared:
    return prepare(load(path), load_board("mps2_an386"), module_name="m", **changes)


def time(made: Prepared) -> int:
    """The cycles of all layers, as estimated where kernels are chosen."""
    choose = ByEstimate(load_board("mps2_an386").target, "balanced")
    return sum(choose.time(node.lowered.kernel) for node in made.lowered.nodes)


def test_the_layer_that_sets_the_peak_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    """The others, which widen their inputs in less memory than it needs, keep doing that."""
    path = autoencoder(tmp_path / "m.tflite")
    fast, lean = prepared(path, optimize="speed"), prepared(path)
    assert fast.plan.total >= 2 * DEPTH
    assert lean.plan.total < DEPTH
    first, *others = (bool(node.lowered.scratch) for node in lean.lowered.nodes)
    assert not first
    assert all(others)
    assert lean.whole is None


@pytest.mark.parametrize(("depth", "units"), [
    (4, 1), (4, 13), (20, 3), (20, 6), (64, 7), (64, 40), (512, 2), (512, 18), (7104, 1),
])
def test_every_way_to_widen_one_row_gives_the_same(depth: int, units: int, tmp_path: Path) -> None:
    m, rng = ModelBuilder(), np.random.default_rng(depth + units)
    x = m.tensor("x", (1, depth), "int8", scale=0.05, zero_point=-3)
    (tmp_path / "m.tflite").write_bytes(m.build([x], [dense(m, rng, x, depth, units)]))
    graph = load(tmp_path / "m.tflite")
    value = rng.integers(-128, 128, (1, depth), np.int8)
    (wanted,) = interpret(graph, [value])
    node = Lowerer(load_board("mps2_an386").target, "speed")(graph).nodes[0]
    found = variants_of(node.context, load_board("mps2_an386").target, "balanced")
    direct = [one.name for one in found if one.name.endswith(", direct")]
    assert direct
    for variant in found:
        made = variant.make()
        assert bool(made.scratch) == (variant.name not in direct)
        np.testing.assert_array_equal(run(graph, made, value), wanted, variant.name)


def test_a_limit_is_kept_whatever_it_costs(tmp_path: Path) -> None:
    """Here one layer is nearly all of the network, whose blocks leave channels over."""
    width = 160
    path = autoencoder(tmp_path / "m.tflite", layers=1, width=width)
    fast, usual = prepared(path, optimize="speed"), prepared(path)
    made = prepared(path, optimize="speed", ram=2 * width)
    assert made.plan.total <= 2 * width < usual.plan.total == fast.plan.total
    assert not made.lowered.nodes[0].lowered.scratch


def test_time_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = autoencoder(tmp_path / "m.tflite")
    fast, lean = prepared(path, optimize="speed"), prepared(path)
    assert time(fast) < time(lean) <= time(fast) * (1 + scratch_policy.CHEAP.most)
    worthless = scratch_policy.MemoryWorth(most=0, code=0)
    monkeypatch.setattr("crtexport.pipeline.layouts.CHEAP", worthless)
    assert prepared(path).plan.total == fast.plan.total
