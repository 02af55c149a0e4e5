"""Fused nodes compute what their parts do one after the other, in every variant of the layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.verify import verify
from crtexport.kir.language import Scalar
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.passes import run as simplify
from crtexport.pipeline import fuse_policy
from crtexport.pipeline.driver import prepare
from crtexport.pipeline.result import Prepared
from crtexport.plan import plan
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.variants import fused_variants
from tests.differential.network import interpret
from tests.helpers import require, require_reference, target_of
from tests.lowered import lower, run
from tests.schedules.scalar.test_blocks import Network
from tests.tflite_builder import ModelBuilder

Array = npt.NDArray[np.generic]
Integer = Callable[[int, int], int]
BOARDS = (
    "mps2_an386", "mps2_an385", "mps3_an547", "mps2_an500", "qemu_cortex_m0", "qemu_riscv32",
    "qemu_riscv32_v", "host",
)
VECTORS = ("host", "mps3_an547", "mps2_an500", "qemu_riscv32_v")
"""Boards with vectors, which an epilogue can't always take."""
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
KINDS = ("conv", "depthwise", "dense")
POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")
REDUCTIONS = ("REDUCE_MAX", "MEAN")
SETTINGS = settings(
    max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Layers(Network):
    """Knows the scales of its tensors."""

    def __init__(self, integer: Integer, seed: int) -> None:
        super().__init__(integer, seed)
        self.quant: dict[int, tuple[float, int]] = {}

    def tensor(self, shape: Sequence[int], scale: float = 0.05) -> int:
        zero = int(self.rng.integers(-128, 128))
        return self.alike(shape, (scale, zero))

    def alike(self, shape: Sequence[int], quant: tuple[float, int]) -> int:
        self.count += 1
        number = self.m.tensor(
            f"t{self.count}", shape, "int8", scale=quant[0], zero_point=quant[1]
        )
        self.quant[number] = quant
        return number

    def pool(
        self, code: str, y: int, shape: tuple[int, ...], window: tuple[int, int],
        padding: str = "VALID",
    ) -> int:
        """Behind tensor ``y`` what windows that don't overlap are folded to."""
        round_up = padding == "SAME"
        rows, columns = (
            -(-size // step) if round_up else size // step
            for size, step in zip(shape[1:3], window, strict=True)
        )
        z = self.alike((1, rows, columns, shape[3]), self.quant[y])
        self.m.op(
            code, [y], [z], filter_width=window[1], filter_height=window[0], stride=window,
            padding=padding, activation=ACTIVATIONS[self.integer(0, 3)],
        )
        return z

    def reduction(
        self, code: str, y: int, shape: tuple[int, ...], axes: tuple[int, ...]
    ) -> int:
        """Behind tensor ``y`` what whole rows, columns or images are folded to."""
        keep = bool(self.integer(0, 1))
        folded = [1 if axis in axes else size for axis, size in enumerate(shape)]
        size = folded if keep else [n for axis, n in enumerate(folded) if axis not in axes]
        own = code == "MEAN" and self.integer(0, 2)
        z = self.tensor(size, 0.01 * self.integer(1, 20)) if own else self.alike(
            size, self.quant[y]
        )
        a = self.m.tensor(f"a{self.count}", (len(axes),), "int32", data=axes)
        self.m.op(code, [y, a], [z], keep_dims=keep)
        return z


def layer(
    n: Network, kind: str, most: int = 7
) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
    """(shape of the input, input, output, shape of the output) of a drawn layer."""
    if kind == "dense":
        shape: tuple[int, ...] = (1, n.integer(1, 40))
        x = n.tensor(shape)
        y, units = n.dense(x, shape[1])
        return shape, x, y, (1, units)
    shape = (1, n.integer(1, most), n.integer(1, most), n.integer(1, 21))
    x = n.tensor(shape)
    y, inner = n.window(x, shape[1:], kind == "depthwise")  # type: ignore[arg-type]
    return shape, x, y, (1, *inner)


def fused(graph: Graph, board: str) -> Graph | None:
    """The graph with all that can be fused for a board; None if that is nothing."""
    target = target_of(board)
    found = fuse_policy.fuse(graph, fuse_policy.pairs(graph, target, "balanced"))
    verify(found)
    return found if len(found.nodes) < len(graph.nodes) else None


def check_variants(graph: Graph, board: str, data: st.DataObject, *values: Array) -> None:
    joint = fused(graph, board)
    if joint is None:
        assert board in VECTORS
        return
    context = Context(joint, joint.nodes[0])
    variants = fused_variants(context, target_of(board), "balanced")
    (expected,) = interpret(graph, values)
    variant = data.draw(st.sampled_from(variants)).make()
    np.testing.assert_array_equal(run(joint, variant, *values), expected)
    np.testing.assert_array_equal(run(joint, operator_table.lower(context), *values), expected)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_a_sum_with_a_layers_result(
    kind: str, board: str, tmp_path: Path, data: st.DataObject
) -> None:
    n = Layers(lambda low, high: data.draw(st.integers(low, high)), data.draw(st.integers(0, 99)))
    shape, x, y, inner = layer(n, kind)
    other = n.tensor(inner, 0.01 * n.integer(1, 20))
    z = n.tensor(inner, 0.01 * n.integer(1, 20))
    operands = [y, other] if n.integer(0, 1) else [other, y]
    code, activation = ("ADD", "SUB", "MUL")[n.integer(0, 2)], ACTIVATIONS[n.integer(0, 3)]
    n.m.op(code, operands, [z], activation=activation)
    (tmp_path / "m.tflite").write_bytes(n.m.build([x, other], [z]))
    values = [n.rng.integers(-128, 128, s).astype(np.int8) for s in (shape, inner)]
    check_variants(load(tmp_path / "m.tflite"), board, data, *values)


@pytest.mark.parametrize("code", ["ADD", "MEAN"])
def test_a_transposed_convolution(code: str, tmp_path: Path) -> None:
    n = Layers(lambda low, high: low, 2)
    shape, inner = (1, 5, 4, 7), (1, 10, 8, 6)
    x, y = n.tensor(shape), n.tensor(inner)
    size = n.m.tensor("size", (4,), "int32", data=inner)
    weights, _ = n.weights((6, 3, 3, 7), 0)
    n.m.op("TRANSPOSE_CONV", [size, weights, x], [y], padding="SAME", stride=(2, 2))
    inputs, values = [x], [n.rng.integers(-128, 128, shape).astype(np.int8)]
    if code == "ADD":
        inputs.append(n.tensor(inner))
        values.append(n.rng.integers(-128, 128, inner).astype(np.int8))
        z = n.tensor(inner)
        n.m.op("ADD", [y, inputs[1]], [z])
    else:
        z = n.reduction("MEAN", y, inner, (1, 2))
    (tmp_path / "m.tflite").write_bytes(n.m.build(inputs, [z]))
    graph = load(tmp_path / "m.tflite")
    joint = fused(graph, "mps2_an386")
    assert joint is not None
    (expected,) = interpret(graph, values)
    found = lower(Context(joint, joint.nodes[0]), target_of("mps2_an386"), "balanced")
    np.testing.assert_array_equal(run(joint, found, *values), expected)


@pytest.mark.parametrize(("columns", "sums"), [(15, Scalar.I16), (16, Scalar.I32)])
def test_sums_of_windows_take_as_few_bytes_as_they_fit_in(
    columns: int, sums: Scalar, tmp_path: Path
) -> None:
    n = Layers(lambda low, high: low, 3)
    x = n.tensor((1, 16, columns, 2))
    y, _ = window(n, x, (16, columns, 2), 3)
    z = n.pool("AVERAGE_POOL_2D", y, (1, 16, columns, 3), (16, columns))
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [z]))
    graph = load(tmp_path / "m.tflite")
    joint = fused(graph, "mps2_an385")
    assert joint is not None
    found = operator_table.lower(Context(joint, joint.nodes[0]))
    (kept,) = [b for b in found.kernel.buffers if "sums" in b.name]
    assert kept.dtype is sums
    most = np.full((1, 16, columns, 2), 127, np.int8)
    np.testing.assert_array_equal(run(joint, found, most), interpret(graph, [most])[0])


@pytest.mark.parametrize("board", BOARDS)
@SETTINGS
@given(data=st.data())
def test_what_windows_of_a_layers_results_become(
    board: str, tmp_path: Path, data: st.DataObject
) -> None:
    code = data.draw(st.sampled_from((*POOLS, *REDUCTIONS)))
    n = Layers(lambda low, high: data.draw(st.integers(low, high)), data.draw(st.integers(0, 99)))
    shape, x, y, inner = layer(n, ("conv", "depthwise")[n.integer(0, 1)], 12)
    if code in POOLS:
        window = n.integer(1, min(4, inner[1])), n.integer(1, min(4, inner[2]))
        if n.integer(0, 3) == 0:
            window = inner[1:3]
        z = n.pool(code, y, inner, window, ("VALID", "SAME")[n.integer(0, 1)])
    else:
        z = n.reduction(code, y, inner, ((1,), (2,), (1, 2))[n.integer(0, 2)])
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [z]))
    value = n.rng.integers(-128, 128, shape).astype(np.int8)
    check_variants(load(tmp_path / "m.tflite"), board, data, value)


@pytest.mark.parametrize("code", ["ADD", *POOLS, *REDUCTIONS])
@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize("board", BOARDS)
def test_other_types(board: str, dtype: str, code: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    real = dtype == "float32"
    m, out = ModelBuilder(), (1, 7, 5, 6)
    scales = {} if real else {"scale": 0.001}
    x = m.tensor("x", (1, 7, 5, 9), dtype, **scales)
    weights = rng.integers(-100, 100, (6, 3, 3, 9))
    w = m.tensor(
        "w", weights.shape, "float32" if real else "int8", data=weights / 100 if real else weights,
        **({} if real else {"scale": 0.002}),
    )
    b = m.tensor(
        "b", (6,), "float32" if real else "int64", data=np.arange(6),
        **({} if real else {"scale": 2e-6}),
    )
    y = m.tensor("y", out, dtype, **scales)
    m.op("CONV_2D", [x, w, b], [y], padding="SAME", activation="RELU")
    inputs = [x]
    if code == "ADD":
        inputs.append(m.tensor("other", out, dtype, **scales))
        z = m.tensor("z", out, dtype, **({} if real else {"scale": 0.0015}))
        m.op("ADD", [inputs[1], y], [z])
    elif code in POOLS:
        z = m.tensor("z", (1, 3, 2, 6), dtype, **scales)
        m.op(code, [y], [z], filter_width=2, filter_height=2, stride=(2, 2))
    else:
        z = m.tensor("z", (1, 6), dtype, **scales)
        m.op(code, [y, m.tensor("axes", (2,), "int32", data=[1, 2])], [z])
    (tmp_path / "m.tflite").write_bytes(m.build(inputs, [z]))
    graph = load(tmp_path / "m.tflite")
    values = [
        (rng.normal(size=shape) if real else rng.integers(-9000, 9000, shape)).astype(dtype)
        for shape in ((1, 7, 5, 9), out)[: len(inputs)]
    ]
    joint = fused(graph, board)
    if joint is None:
        assert board in VECTORS
        return
    (expected,) = interpret(graph, values)
    for variant in fused_variants(Context(joint, joint.nodes[0]), target_of(board), "balanced"):
        found = run(joint, variant.make(), *values)
        if real:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(found, expected)


def pyramid(folder: Path) -> Path:
    """Two layers with maxima behind them, and a sum with what the layer before it reads."""
    n = Layers(lambda low, high: low, 4)
    x = n.tensor((1, 21, 18, 3))
    y, shape = window(n, x, (21, 18, 3), 10)
    y = n.pool("MAX_POOL_2D", y, (1, *shape), (2, 2))
    y, shape = window(n, y, (10, 9, 10), 7)
    y = n.pool("MAX_POOL_2D", y, (1, *shape), (3, 2))
    again, shape = window(n, y, (3, 4, 7), 7)
    z = n.tensor((1, *shape))
    n.m.op("ADD", [y, again], [z], activation="RELU")
    path = folder / "m.tflite"
    path.write_bytes(n.m.build([x], [z]))
    return path


def window(
    n: Layers, x: int, shape: tuple[int, int, int], units: int
) -> tuple[int, tuple[int, int, int]]:
    """A convolution with windows of 3 x 3: its output, and the shape of that."""
    y = n.tensor((1, *shape[:2], units))
    n.m.op("CONV_2D", [x, *n.weights((units, 3, 3, shape[2]), 0)], [y], padding="SAME")
    return y, (*shape[:2], units)


def parts(models: Sequence[Prepared]) -> list[str]:
    return [node.operator for node in models[0].graph.nodes]


def chain(folder: Path) -> Path:
    """Sums of what a layer reads and what it gives, again and again."""
    n = Layers(lambda low, high: low, 4)
    x = n.tensor((1, 16, 16, 8))
    y, shape = window(n, x, (16, 16, 8), 8)
    for _ in range(3):
        again, _ = window(n, y, shape, 8)
        z = n.tensor((1, *shape))
        n.m.op("ADD", [y, again], [z], activation="RELU")
        y = z
    z, _ = window(n, y, shape, 8)
    path = folder / "m.tflite"
    path.write_bytes(n.m.build([x], [z]))
    return path


def means(folder: Path) -> Path:
    """Means of windows behind a layer, and behind another one those of a whole image."""
    n = Layers(lambda low, high: high, 6)
    x = n.tensor((1, 21, 18, 3))
    y, shape = window(n, x, (21, 18, 3), 12)
    y = n.pool("AVERAGE_POOL_2D", y, (1, *shape), (4, 3), "SAME")
    y, shape = window(n, y, (6, 6, 12), 40)
    z = n.reduction("MEAN", y, (1, *shape), (1, 2))
    path = folder / "m.tflite"
    path.write_bytes(n.m.build([x], [z]))
    return path


FUSED = {
    pyramid: {"Conv2D + MaxPool2D"}, chain: {"Conv2D + Add"},
    means: {"Conv2D + AveragePool2D", "Conv2D + Mean"},
}


@pytest.mark.qemu
@pytest.mark.parametrize(("board", "network", "emit"), [
    ("mps2_an386", pyramid, "c"), ("mps2_an386", chain, "llvm"), ("mps2_an386", means, "llvm"),
    ("mps2_an385", pyramid, "llvm"), ("mps2_an385", means, "c"), ("mps3_an547", pyramid, "llvm"),
    ("mps3_an547", means, "c"), ("qemu_riscv32", pyramid, "c"), ("qemu_riscv32", chain, "llvm"),
    ("qemu_riscv32_v", means, "c"), ("qemu_riscv32_v", means, "llvm"),
])
def test_fused_layers_agree_on_the_machine(
    board: str, network: Callable[[Path], Path], emit: str, tmp_path: Path
) -> None:
    require("qemu-system-riscv32" if "riscv32" in board else "qemu-system-arm")
    path = network(tmp_path)
    models = crtexport.export(path, board=board, emit=emit, output=tmp_path / "m.tar").models
    assert FUSED[network] <= set(parts(models))
    rng = np.random.default_rng(8)
    (given_,) = open_package(tmp_path / "m.tar").inputs
    value = rng.integers(-128, 128, (3, *given_.shape)).astype(np.int8)
    result = crtexport.run(tmp_path / "m.tar", {given_.field: value})
    graph = load(path)
    for sample, row in zip(value, result.outputs, strict=True):
        np.testing.assert_array_equal(row[0], interpret(graph, [sample])[0])


@pytest.mark.qemu
def test_means_agree_with_the_reference(tmp_path: Path) -> None:
    require("qemu-system-arm")
    require_reference()
    assert crtexport.verify(means(tmp_path), board="mps2_an386", samples=3).agrees


def prepared(path: Path, board: str) -> Prepared:
    """As one whole tensor after another."""
    return prepare(load(path), load_board(board), ram=1 << 20)


def test_layers_whose_maximum_is_all_that_is_wanted_need_no_memory_for_results(
    tmp_path: Path,
) -> None:
    path = pyramid(tmp_path)
    assert parts([prepared(path, "mps2_an386")])[0] == "Conv2D + MaxPool2D"
    with patch.object(fuse_policy, "WORTH", 2.0):
        plain = prepared(path, "mps2_an386")
    assert "Conv2D + MaxPool2D" not in parts([plain])
    assert prepared(path, "mps2_an386").plan.total < 0.6 * plain.plan.total


def test_what_is_not_fused_is_lowered_once(tmp_path: Path) -> None:
    chosen: list[Context] = []

    def usual(context: Context, found: Sequence[Candidate], part: float) -> Candidate:
        chosen.append(context)
        return found[0]

    graph, target = simplify(load(chain(tmp_path))), target_of("mps2_an386")
    lower = Lowerer(target, "balanced", usual)
    lowered, _ = fuse_policy.smallest(graph, target, "balanced", lower, plan)
    assert [node.node for node in lowered.nodes] == [*lowered.graph.nodes]
    assert any(node.node.parts for node in lowered.nodes)
    layers = [context.node.outputs for context in chosen if not context.node.parts]
    assert sorted(layers) == sorted(node.outputs for node in graph.nodes)


@pytest.mark.parametrize("code", ["AVERAGE_POOL_2D", "MEAN"])
def test_means_of_an_image_need_no_image(code: str, tmp_path: Path) -> None:
    n = Layers(lambda low, high: low, 4)
    x = n.tensor((1, 16, 16, 3))
    y, shape = window(n, x, (16, 16, 3), 24)
    z = (
        n.reduction(code, y, (1, *shape), (1, 2)) if code == "MEAN"
        else n.pool(code, y, (1, *shape), shape[:2])
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(n.m.build([x], [z]))
    made = prepared(path, "mps2_an386")
    assert len(made.graph.nodes) == 1
    with patch.object(fuse_policy, "WORTH", 2.0):
        plain = prepared(path, "mps2_an386")
    assert plain.plan.total >= 16 * 16 * 24 > 16 * made.plan.total


def test_only_maxima_are_fused_for_speed(tmp_path: Path) -> None:
    def fused_in(path: Path) -> set[str]:
        made = prepare(load(path), load_board("mps2_an386"), optimize="speed")
        return {part for part in parts([made]) if "+" in part}

    assert fused_in(pyramid(tmp_path)) == {"Conv2D + MaxPool2D"}
    assert fused_in(means(tmp_path)) == set()


@pytest.mark.parametrize("where", ["output", "reader"])
def test_results_that_others_want_are_stored(where: str, tmp_path: Path) -> None:
    n = Layers(lambda low, high: low, 4)
    x = n.tensor((1, 12, 12, 3))
    y, shape = window(n, x, (12, 12, 3), 8)
    z = n.pool("MAX_POOL_2D", y, (1, *shape), (2, 2))
    outputs = [z, y]
    if where == "reader":
        outputs = [z, n.alike((1, *shape), n.quant[y])]
        n.m.op("RELU", [y], [outputs[1]])
    path = tmp_path / "m.tflite"
    path.write_bytes(n.m.build([x], outputs))
    graph = simplify(load(path))
    assert fuse_policy.pairs(graph, target_of("mps2_an386"), "balanced") == []


def test_sums_that_repeat_an_operand_are_not_fused(tmp_path: Path) -> None:
    n = Layers(lambda low, high: low, 4)
    x, other = n.tensor((1, 6, 6, 3)), n.tensor((1, 1, 1, 8))
    y, shape = window(n, x, (6, 6, 3), 8)
    z = n.tensor((1, *shape))
    n.m.op("ADD", [y, other], [z])
    path = tmp_path / "m.tflite"
    path.write_bytes(n.m.build([x, other], [z]))
    assert fuse_policy.pairs(load(path), target_of("mps2_an386"), "balanced") == []


def test_a_sum_with_what_the_layer_reads_takes_its_place(tmp_path: Path) -> None:
    """Its input, which the sum reads once more, needs no second piece of memory beside it."""
    path = chain(tmp_path)
    made = prepared(path, "mps2_an386")
    assert parts([made]).count("Conv2D + Add") == 3
    with patch.object(fuse_policy, "WORTH", 2.0):
        plain = prepared(path, "mps2_an386")
    assert made.plan.total < 0.7 * plain.plan.total
