"""Winograd's products of 3x3 windows on Armv7E-M give what plain sums give, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import crtexport
from crtexport.firmware.board import load_board
from crtexport.firmware.board_schema import Board
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Activation, Conv2D
from crtexport.ir.ops.base import Padding2D
from crtexport.ir.types import DType, Quantization
from crtexport.kir import language as kir
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.assemble import assemble
from crtexport.kir.walk import walk
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context, Derived
from crtexport.mlf.reader import open_package
from crtexport.pipeline.driver import prepare
from crtexport.schedules.scalar import smlad_winograd, winograd_tiles
from crtexport.schedules.scalar.winograd_tiles import (
    PARTS,
    SHIFT,
    WinogradBlock,
    WinogradWords,
    channel_pairs,
)
from crtexport.schedules.select.choose import ByEstimate
from crtexport.schedules.select.cost_model import estimate, machine_for
from crtexport.schedules.variants import variants_of
from tests.differential.network import interpret
from tests.helpers import require, target_of
from tests.lowered import run
from tests.plan.graphs import GraphBuilder
from tests.schedules.layers import search

Array = np.ndarray[tuple[int, ...], np.dtype[np.int8]]
BLOCKS = (WinogradBlock(4, 2), WinogradBlock(2, 4))
EXTREMES = np.array([-128, 127, 0, 1, -1, 64])
BOARD = "mps2_an386"


def convolution(
    shape: tuple[int, int, int, int], units: int, padding: tuple[int, int, int, int], *,
    zero_point: int = -9, weights: Array | None = None, kernel: tuple[int, int] = (3, 3),
    stride: int = 1, dilation: int = 1, scale: float = 0.9, seed: int = 3,
    activation: Activation = Activation.NONE,
) -> Graph:
    """A convolution with a scale for each channel."""
    rng, b = np.random.default_rng(seed), GraphBuilder()
    scales = tuple(rng.uniform(0.0005, 0.02, units).tolist())
    w_shape = (units, *kernel, shape[3])
    values = rng.integers(-127, 128, w_shape).astype(np.int8) if weights is None else weights
    x = b.input(*shape, dtype=DType.INT8, quant=Quantization((0.05,), (zero_point,)))
    w = b.constant(values, Quantization(scales, (0,) * units, 0))
    bias = b.constant(
        rng.integers(-(1 << 16), 1 << 16, units).astype(np.int32),
        Quantization(tuple(0.05 * one for one in scales), (0,) * units, 0),
    )
    op = Conv2D(
        stride=(stride, stride), dilation=(dilation, dilation), padding=Padding2D(*padding),
        activation=activation,
    )
    y = b.node(op, x, w, bias, quant=Quantization((scale,), (int(rng.integers(-20, 20)),)))
    return b.finish(y)


def context_of(graph: Graph) -> Context:
    return Context(graph, graph.nodes[0])


def assert_exact(graph: Graph, value: Array, block: WinogradBlock) -> Array:
    """Whether ``block``'s kernel gives what the plain one does; returns that."""
    context = context_of(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smlad_winograd, "BLOCKS", (block,))
        patch.setattr(smlad_winograd, "_WORTH", 2.0)
        (variant,) = smlad_winograd.candidates(context)
    assert variant.name == block.name
    expected = run(graph, operator_table.lower(context), value)
    np.testing.assert_array_equal(run(graph, variant.make(), value), expected)
    return expected


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
@search(30)
@given(data=st.data())
def test_drawn_layers_give_plain_sums(block: WinogradBlock, data: st.DataObject) -> None:
    integer = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    padding = tuple(integer(0, 2) for _ in range(4))
    least = 2 * block.tiles + 2
    shape = (
        integer(1, 2), integer(max(1, 4 - padding[0] - padding[1]), 7),
        integer(max(1, least - padding[2] - padding[3]), 19), integer(8, 21),
    )
    graph = convolution(
        shape, integer(block.channels, 7), padding,  # type: ignore[arg-type]
        zero_point=integer(-128, 127), seed=integer(0, 99),
        activation=data.draw(st.sampled_from([Activation.NONE, Activation.RELU])),
    )
    value = np.random.default_rng(integer(0, 99)).choice(EXTREMES, shape).astype(np.int8)
    assert_exact(graph, value, block)


@pytest.mark.parametrize("most", [0, 3000, 1 << 20])
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_any_number_of_tiles_at_a_time_gives_plain_sums(
    block: WinogradBlock, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd_tiles, "MOST", most)
    shape = (1, 5, 35, 10)
    value = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    expected = assert_exact(convolution(shape, 9, (1, 1, 1, 1)), value, block)
    assert len(np.unique(expected)) > 40


@pytest.mark.parametrize("value", [-128, 127])
@pytest.mark.parametrize("weight", [-128, 127])
def test_the_largest_sums_are_exact(value: int, weight: int) -> None:
    shape = (1, 4, 10, 64)
    weights = np.full((2, 3, 3, 64), weight, np.int8)
    graph = convolution(shape, 2, (0, 0, 0, 0), weights=weights, zero_point=0, scale=300.0)
    result = assert_exact(graph, np.full(shape, value, np.int8), BLOCKS[0])
    assert len(np.unique(result)) > 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_parts_are_those_of_the_convolution(data: st.DataObject) -> None:
    """Four times four sums of nine products, by sixteen products: for any cells and taps."""
    numbers = st.integers(-128, 127)
    cells = np.array(data.draw(st.lists(numbers, min_size=16, max_size=16))).reshape(4, 4)
    taps = np.array(data.draw(st.lists(numbers, min_size=9, max_size=9)))
    weights = np.zeros((1, 9, 4), np.int8)
    weights[0, :, 1] = taps
    packed = WinogradWords(4, 1)(weights.reshape(1, -1)).view(np.int16).reshape(PARTS, 2, 2)
    assert not packed[:, 0].any()
    assert not packed[:, 1, 1].any()
    parts = packed[:, 1, 0].reshape(4, 4).astype(np.int64)
    seen = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    back = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
    found = back @ (parts * (seen @ cells @ seen.T)) @ back.T
    wanted = [
        [int((cells[y : y + 3, x : x + 3] * taps.reshape(3, 3)).sum()) for x in range(2)]
        for y in range(2)
    ]
    assert found.tolist() == [[4 * total for total in row] for row in wanted]


@pytest.mark.parametrize("depth", [4, 8, 9, 10, 11, 21])
def test_each_input_channel_is_multiplied_once(depth: int) -> None:
    pairs = channel_pairs(depth)
    assert len(pairs) == -(-depth // 4) * 2
    assert sorted(pairs[pairs >= 0].tolist()) == list(range(depth))


@pytest.mark.parametrize("changes", [
    {"stride": 2}, {"dilation": 2}, {"kernel": (3, 2)}, {"kernel": (5, 5)},
])
def test_other_windows_are_left_to_sums(changes: dict[str, object]) -> None:
    graph = convolution((1, 12, 12, 8), 8, (0, 0, 0, 0), **changes)  # type: ignore[arg-type]
    assert not smlad_winograd.candidates(context_of(graph))


@pytest.mark.parametrize(("shape", "units"), [
    ((1, 8, 8, 4), 8),  # few channels
    ((1, 3, 8, 8), 8),  # one row
    ((1, 8, 5, 8), 8),  # too few columns for two tiles
    ((1, 8, 9, 8), 1),  # one output channel
    ((1, 3 + 2, 4 + 3, 8), 8),  # tiles overlap too often
])
def test_layers_that_gain_nothing_are_left_to_sums(
    shape: tuple[int, int, int, int], units: int
) -> None:
    assert not smlad_winograd.candidates(context_of(convolution(shape, units, (0, 0, 0, 0))))


def test_sums_that_could_wrap_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.full((2, 3, 3, 512), 127, np.int8)
    graph = convolution((1, 8, 8, 512), 2, (1, 1, 1, 1), weights=weights)
    monkeypatch.setattr(smlad_winograd, "_SCRATCH", 1 << 20)
    assert smlad_winograd.candidates(context_of(graph))
    monkeypatch.setattr(smlad_winograd, "SHIFT", SHIFT + 3)
    assert not smlad_winograd.candidates(context_of(graph))


LAYER = ((1, 16, 16, 16), 16, (1, 1, 1, 1))


@pytest.mark.parametrize("optimize", ["size", "balanced"])
def test_only_speed_has_such_variants(optimize: str) -> None:
    context = context_of(convolution(*LAYER))
    found = variants_of(context, target_of(BOARD), optimize)
    assert not any(variant.larger or "winograd" in variant.name for variant in found)
    fast = variants_of(context, target_of(BOARD), "speed")
    assert [variant.name for variant in fast if variant.larger] == ["winograd 4x2"]
    assert not any(one.larger for one in variants_of(context, target_of("mps2_an385"), "speed"))


@pytest.mark.parametrize("layer", [
    LAYER, ((1, 8, 8, 32), 24, (1, 1, 1, 1)), ((1, 9, 33, 12), 10, (1, 0, 0, 1)),
])
def test_the_cost_model_knows_what_instructions_take(
    layer: tuple[tuple[int, int, int, int], int, tuple[int, int, int, int]]
) -> None:
    """Of the loop of products, against the cycles in which its instructions are ordered."""
    target = target_of(BOARD)
    context = context_of(convolution(*layer))
    variants = variants_of(context, target, "speed")
    chosen = ByEstimate(target, "speed")(context, variants, 1.0)
    assert chosen.larger
    machine = machine_for(target)
    assert machine is not None
    products = np.prod(layer[0]) * layer[1] * 9
    cost = estimate(chosen.make().kernel, machine)
    assert 0.4 * products < cost.time < 0.95 * products
    others = [estimate(one.make().kernel, machine).time for one in variants if not one.larger]
    assert cost.time < min(others)


def test_all_hot_loops_are_ordered() -> None:
    for layer in (LAYER, ((1, 8, 8, 64), 64, (1, 1, 1, 1))):
        (variant,) = smlad_winograd.candidates(context_of(convolution(*layer)))
        kernel = variant.make().kernel
        loops = [s for s in walk(kernel.body) if isinstance(s, kir.For) and s.assembled]
        assert len(loops) == 3
        for loop in loops:
            assert assemble(loop, kernel, Features(dsp=True)).lines


# ---- whole exports


def smaller(flash: int, ram: int = 1 << 20) -> Board:
    """A board with so much memory."""
    board = load_board(BOARD)
    sizes = {"flash": flash, "ram": ram}
    return replace(board, memory={
        name: replace(memory, size=sizes[name]) for name, memory in board.memory.items()
    })


def chosen_on(board: Board, **options: object) -> str:
    graph = convolution((1, 16, 16, 48), 48, (1, 1, 1, 1))
    made = prepare(graph, board, optimize="speed", **options)  # type: ignore[arg-type]
    return made.lowered.nodes[0].chosen


def test_a_board_with_too_little_memory_gets_other_variants() -> None:
    assert chosen_on(smaller(128 << 10)) == "winograd 4x2"
    assert chosen_on(smaller(70 << 10)).startswith("paired")
    assert chosen_on(smaller(1 << 20, ram=34 << 10)).startswith("paired")
    assert chosen_on(smaller(1 << 20), ram=16 << 10).startswith("paired")


@pytest.mark.qemu
@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("board", ["mps2_an386", "mps2_an500", "mps2_an505"])
def test_odd_layers_agree_on_the_machine(board: str, emit: str, tmp_path: Path) -> None:
    require("qemu-system-arm")
    rng = np.random.default_rng(5)
    shape = (1, 7, 19, 10)
    graph = convolution(shape, 9, (1, 2, 0, 1), zero_point=77)
    value = rng.integers(-128, 128, (3, *shape)).astype(np.int8)
    package = tmp_path / "m.tar"
    made = crtexport.export(graph, board=board, emit=emit, optimize="speed", output=package)
    assert "winograd" in made.lowered.nodes[0].chosen
    (given_,) = open_package(package).inputs
    result = crtexport.run(package, {given_.field: value}, board=board)
    for sample, row in zip(value, result.outputs, strict=True):
        np.testing.assert_array_equal(row[0], interpret(graph, [sample])[0])


def test_weights_are_stored_once_for_each_part() -> None:
    (variant,) = smlad_winograd.candidates(context_of(convolution(*LAYER)))
    sizes = [
        arg.data.nbytes for arg in variant.make().args
        if isinstance(arg, Derived) and arg.purpose == "weights"
    ]
    assert sizes == [16 * 16 * PARTS * 2]


def test_packed_weights_stay_packed() -> None:
    weights = np.random.default_rng(2).integers(-8, 8, (12, 3, 3, 8)).astype(np.int8)
    graph = convolution((1, 16, 16, 8), 12, (1, 1, 1, 1), weights=weights)
    (node,) = prepare(graph, load_board(BOARD), optimize="speed", weights="packed").lowered.nodes
    assert any("unpacked" in name for name in node.candidates)
    assert not any("winograd" in name for name in node.candidates)
    (node,) = prepare(graph, load_board(BOARD), optimize="speed").lowered.nodes
    assert "winograd" in node.chosen
