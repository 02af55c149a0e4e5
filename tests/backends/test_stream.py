"""Results of windows that move on: the same as of each window alone, however rows come."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.artifact.model import Artifact
from crtexport.backends.c.header import emit_header
from crtexport.firmware.board import load_board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import (
    Activation,
    Conv2D,
    FullyConnected,
    MaxPool2D,
    Padding2D,
    Relu,
    Reshape,
    Slice,
)
from crtexport.ir.types import DType, Quantization
from crtexport.pipeline.driver import prepare
from crtexport.simulation.library import LoadedCode
from crtexport.support.errors import CrtExportError
from tests.backends.fed import Fed, by_c, by_llvm, fed_by
from tests.packed_functions import simulation_of
from tests.plan.execute import execute
from tests.plan.graphs import GraphBuilder

Array = npt.NDArray[Any]
Build = Callable[[Artifact, Path], LoadedCode]
Q = Quantization((0.05,), (-3,))
WEIGHTS = Quantization((0.01,), (0,))
ROWS, HOP = 21, 2
HOST = load_board("host")


def _network() -> Graph:
    """Three convolutions over time, one of every other frame, and a dense layer."""
    rng = np.random.default_rng(0)
    b = GraphBuilder()
    x = b.input(1, ROWS, 1, 4, dtype=DType.INT8, quant=Q)
    for taps, stride, dilation in ((3, 1, 1), (3, 2, 1), (2, 1, 3)):
        weights = b.constant(rng.integers(-127, 128, (4, taps, 1, 4)).astype(np.int8), WEIGHTS)
        op = Conv2D((stride, 1), (dilation, 1), activation=Activation.RELU)
        x = b.node(op, x, weights, None, quant=Q)
    count = b.tensors[x].type.elements
    dense = b.constant(rng.integers(-127, 128, (5, count)).astype(np.int8), WEIGHTS)
    flat = b.node(Reshape((1, count)), x, quant=Q)
    return b.finish(b.node(FullyConnected(), flat, dense, None, quant=Q))


GRAPH = _network()


def _artifact(*, caller: bool = False) -> Artifact:
    return prepare(
        GRAPH, HOST, stream=True, workspace="caller" if caller else "static", module_name="fed"
    ).artifact


fed = fed_by(lambda caller: _artifact(caller=caller))


def _frames(seed: int, count: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, (count, 1, 4)).astype(np.int8)


def _window(frames: Array, end: int) -> Array:
    """What the network makes of the window that ends before a frame, computed as a whole."""
    return execute(GRAPH, [frames[None, end - ROWS : end]])[0]


def _wanted(done: int) -> int:
    return ROWS - done if done <= ROWS else (ROWS - done) % HOP


@pytest.mark.parametrize("most", [1, 2, 3, 50])
def test_each_window_gives_what_it_gives_alone(fed: Fed, most: int) -> None:
    rng, frames = np.random.default_rng(most), _frames(most, ROWS + 60)
    assert fed.call("begin") == 0
    done = compared = 0
    while done < len(frames):
        count = min(int(rng.integers(0, most + 1)), len(frames) - done)
        assert fed.feed(frames[done : done + count]) == _wanted(done + count)
        done += count
        if _wanted(done):
            assert fed.finish() == -3
        elif rng.integers(0, 4):  # no result has to be asked for
            assert fed.finish() == 0
            np.testing.assert_array_equal(fed.output, _window(frames, done))
            compared += 1
    assert compared or most == 50


def test_a_result_can_be_asked_for_again(fed: Fed) -> None:
    frames = _frames(1, ROWS)
    fed.call("begin")
    fed.feed(frames)
    for _ in range(2):
        fed.output[:] = 0
        assert fed.finish() == 0
        np.testing.assert_array_equal(fed.output, _window(frames, ROWS))


def test_a_network_begins_anew_at_any_time(fed: Fed) -> None:
    frames = _frames(2, ROWS + HOP)
    for before in (5, ROWS, ROWS + 1):
        fed.call("begin")
        fed.feed(_frames(3, before))
        assert fed.call("begin") == 0
        assert fed.finish() == -3
        assert fed.feed(frames[:ROWS]) == 0
        assert fed.feed(frames[ROWS:]) == 0
        assert fed.finish() == 0
        np.testing.assert_array_equal(fed.output, _window(frames, ROWS + HOP))


@pytest.mark.parametrize("build", [by_c, by_llvm])
def test_rows_before_begin_are_an_error(build: Build, tmp_path: Path) -> None:
    artifact = _artifact()
    fed = Fed(artifact, build(artifact, tmp_path))
    assert fed.feed(_frames(4, 1)) == -3
    assert fed.finish() == -3
    assert fed.call("feed", ctypes.c_void_p(None), 1) == -1


@pytest.mark.parametrize("build", [by_c, by_llvm])
def test_further_rows_can_follow_a_whole_window(build: Build, tmp_path: Path) -> None:
    artifact = _artifact()
    fed = Fed(artifact, build(artifact, tmp_path))
    frames = _frames(5, ROWS + HOP)
    simulation = simulation_of(fed.artifact, fed.library)
    (found,) = simulation.run_whole([frames[None, :ROWS]])
    np.testing.assert_array_equal(found, _window(frames, ROWS))
    assert fed.feed(frames[ROWS:]) == 0
    assert fed.finish() == 0
    np.testing.assert_array_equal(fed.output, _window(frames, ROWS + HOP))


def test_the_header_says_how_many_rows_make_a_further_result() -> None:
    header = emit_header(_artifact())
    assert f"#define TVMGEN_FED_FEED_ROWS {ROWS}u\n" in header
    assert f"#define TVMGEN_FED_FEED_HOP {HOP}u\n" in header


def _graph(make: Callable[[GraphBuilder], int]) -> Graph:
    b = GraphBuilder()
    return b.finish(make(b))


def _conv(b: GraphBuilder, x: int, padding: Padding2D, stride: int = 1) -> int:
    weights = b.constant(np.ones((2, 3, 1, 2), np.float32))
    return b.node(Conv2D((stride, 1), padding=padding), x, weights, None)


def _input(b: GraphBuilder) -> int:
    return b.input(1, 12, 1, 2)


def _after(b: GraphBuilder) -> int:
    return _conv(b, _input(b), Padding2D(1, 1, 0, 0))


def _before(b: GraphBuilder) -> int:
    return _conv(b, _input(b), Padding2D(2, 0, 0, 0))


def _two(b: GraphBuilder) -> int:
    b.input(1, 3)
    return _conv(b, _input(b), Padding2D(0, 0, 0, 0))


def _dense(b: GraphBuilder) -> int:
    return b.node(FullyConnected(), b.input(1, 8), b.constant(np.ones((3, 8), np.float32)), None)


def _rare(b: GraphBuilder) -> int:
    """A row for each 13 frames, of which the window has 12."""
    return _conv(b, _input(b), Padding2D(0, 0, 0, 0), 13)


@pytest.mark.parametrize(("make", "problem"), [
    (_after, "the last 1 of 12 rows of .* need frames after the window"),
    (_before, "the first 2 of 12 rows of .* depend on padding before the window"),
    (_two, "it has 2 inputs"),
    (_dense, "its first layer can't be computed row by row"),
    (_rare, "no number of frames makes whole rows"),
])
def test_networks_that_cannot_go_on_are_refused(
    make: Callable[[GraphBuilder], int], problem: str
) -> None:
    with pytest.raises(CrtExportError, match=problem):
        prepare(_graph(make), HOST, stream=True)


def test_causal_layers_go_on_where_the_last_frames_see_no_padding() -> None:
    def make(b: GraphBuilder) -> int:
        x = _conv(b, _conv(b, _input(b), Padding2D(2, 0, 0, 0)), Padding2D(2, 0, 0, 0))
        size = (1, 8, 1, 2)
        return b.node(Relu(), b.node(Slice((0, 4, 0, 0), size, (1, 1, 1, 1), size), x))

    feed = prepare(_graph(make), HOST, stream=True).artifact.feed
    assert feed is not None
    assert feed.hop == 1


@pytest.mark.parametrize(("options", "problem"), [
    ({"io": "workspace"}, "doesn't lie in the workspace"),
    ({"workspace": "shared"}, "can't lie in memory that other models use"),
    ({"ram": 64}, r"takes \d+ bytes, but 64 were asked for"),
])
def test_options_that_contradict_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(CrtExportError, match=problem):
        prepare(GRAPH, HOST, stream=True, **options)


def test_pools_go_on() -> None:
    b = GraphBuilder()
    graph = b.finish(b.node(Relu(), b.node(MaxPool2D((3, 1), (1, 1)), _input(b))))
    feed = prepare(graph, HOST, stream=True).artifact.feed
    assert feed is not None
    assert (feed.rows, feed.hop) == (12, 1)
