"""Blocked variants compute what the plain kernels do, for any shape, on every kind of machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import crtexport
from crtexport.importers import load
from crtexport.kir.analysis.loop_reversal import reverse_loops
from crtexport.kir.text import dump
from crtexport.lowering import operator_table
from crtexport.lowering.registry import Context
from crtexport.mlf.reader import open_package
from crtexport.schedules.common.candidates import single
from crtexport.schedules.scalar import (
    conv_windows,
    depthwise_planes,
    gemm_blocks,
    pixel_pairs_mul32,
    plane_geometry,
    register_blocks,
    smlad_channel_pairs,
)
from crtexport.schedules.scalar.dot_product_step import ARM_DSP, SCALAR, DotProductStep
from crtexport.schedules.x86 import dense as x86_dense
from crtexport.schedules.x86 import depthwise as x86_depthwise
from crtexport.schedules.x86.machine import X86Machine
from tests.differential.network import interpret
from tests.helpers import require, target_of
from tests.lowered import Variants, lower, run, usual
from tests.schedules.layers import drawing, search
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]


def blocked_variant(step: DotProductStep) -> Variants:
    return lambda context: single(
        "blocked", gemm_blocks.lower(context, step) or conv_windows.lower(context, step)
    )


def vector_variant(machine: X86Machine) -> Variants:
    return lambda context: single(
        "vectors", x86_dense.lower(context, machine) or x86_depthwise.lower(context, machine)
    )


VARIANTS: dict[str, Variants] = {
    "scalar": blocked_variant(SCALAR), "arm_dsp": blocked_variant(ARM_DSP),
    "words": lambda context: (
        smlad_channel_pairs.candidates(context) or depthwise_planes.candidates(context)
    ),
    "quads": lambda context: (
        register_blocks.candidates(context, "balanced")
        or depthwise_planes.candidates(context, plane_geometry.WORDS)
    ),
    "armv6m": lambda context: (
        pixel_pairs_mul32.candidates(context)
        + register_blocks.candidates(context, "balanced", register_blocks.ARMV6M)
        or depthwise_planes.candidates(context, plane_geometry.LONE_WORDS)
    ),
    "riscv": lambda context: (
        register_blocks.candidates(context, "balanced", register_blocks.RISCV)
        or depthwise_planes.candidates(context, plane_geometry.BYTES)
    ),
    "sse": vector_variant(X86Machine(4, fma=False)),
    "avx2": vector_variant(X86Machine(8, fma=True)),
    "vnni": vector_variant(X86Machine(8, fma=True, dots=True)),
}


class Network:
    """int8 layers one after the other, with drawn shapes and values."""

    def __init__(self, integer: Any, seed: int) -> None:
        self.integer, self.rng = integer, np.random.default_rng(seed)
        self.m = ModelBuilder()
        self.count = 0

    def tensor(self, shape: Sequence[int], scale: float = 0.05) -> int:
        self.count += 1
        zero = int(self.rng.integers(-128, 128))
        return self.m.tensor(f"t{self.count}", shape, "int8", scale=scale, zero_point=zero)

    def weights(self, shape: Sequence[int], axis: int) -> list[int]:
        """Per-channel weights and a bias."""
        units = shape[axis]
        self.count += 1
        scales = self.rng.uniform(0.0005, 0.02, units).astype(np.float32).tolist()
        w = self.m.tensor(
            f"w{self.count}", shape, "int8", scale=scales, axis=axis,
            data=self.rng.integers(-127, 128, shape),
        )
        b = self.m.tensor(
            f"b{self.count}", (units,), "int32", scale=[0.05 * s for s in scales], axis=0,
            data=self.rng.integers(-5000, 5000, units),
        )
        return [w, b]

    def window(self, x: int, shape: tuple[int, int, int], depthwise: bool) -> tuple[int, Any]:
        height, width, channels = shape
        kernel = (self.integer(1, min(3, height)), self.integer(1, min(3, width)))
        stride = (self.integer(1, 2), self.integer(1, 2))
        padding = ("VALID", "SAME")[self.integer(0, 1)]
        out = tuple(
            -(-n // s) if padding == "SAME" else -(-(n - k + 1) // s)
            for n, k, s in zip((height, width), kernel, stride, strict=True)
        )
        units = channels if depthwise else self.integer(1, 13)
        y = self.tensor((1, *out, units))
        w_shape = (1, *kernel, units) if depthwise else (units, *kernel, channels)
        self.m.op(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            [x, *self.weights(w_shape, 3 if depthwise else 0)], [y],
            padding=padding, stride=stride,
        )
        return y, (*out, units)

    def dense(self, x: int, depth: int) -> tuple[int, int]:
        units = self.integer(1, 11)
        y = self.tensor((1, units))
        self.count += 1
        w = self.m.tensor(
            f"w{self.count}", (units, depth), "int8", scale=0.003,
            data=self.rng.integers(-127, 128, (units, depth)),
        )
        self.m.op("FULLY_CONNECTED", [x, w], [y])
        return y, units


def layer(kind: str, integer: Any, seed: int) -> tuple[bytes, Array]:
    n = Network(integer, seed)
    if kind == "dense":
        shape: tuple[int, ...] = (1, integer(1, 40))
        x = n.tensor(shape)
        y, _ = n.dense(x, shape[1])
    else:
        shape = (1, integer(1, 6), integer(1, 6), integer(1, 21))
        x = n.tensor(shape)
        y, _ = n.window(x, shape[1:], kind == "depthwise")  # type: ignore[arg-type]
    content = n.m.build([x], [y])
    return content, n.rng.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["conv", "depthwise", "dense"])
@search(25)
@given(data=st.data())
def test_a_blocked_variant_equals_the_plain_kernel(
    kind: str, variant: str, tmp_path: Path, data: st.DataObject
) -> None:
    content, value = layer(kind, drawing(data), data.draw(st.integers(0, 99)))
    (tmp_path / "m.tflite").write_bytes(content)
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    variants = VARIANTS[variant](context)
    assert len({one.name for one in variants}) == len(variants)
    if variants:
        blocked = data.draw(st.sampled_from(variants)).make()
        expected = run(graph, operator_table.lower(context), value)
        np.testing.assert_array_equal(run(graph, blocked, value), expected)
        reverse = reverse_loops(blocked.kernel)
        if reverse is not None:
            got = run(graph, replace(blocked, kernel=reverse), value)
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("channels", [8, 13])
@pytest.mark.parametrize("depthwise", [False, True])
def test_convolutions_in_blocks_run_backwards_too(
    depthwise: bool, channels: int, tmp_path: Path
) -> None:
    n = Network(lambda low, high: min(high, channels), 3)
    x = n.tensor((1, 5, 5, channels))
    y, _ = n.window(x, (5, 5, channels), depthwise)
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    blocked = usual(VARIANTS["scalar"](Context(graph, graph.nodes[0])))
    assert blocked is not None
    assert reverse_loops(blocked.kernel) is not None


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "kernel", "together"), [
    ((5, 8), (3, 3), "SAME VALID"), ((4, 4), (2, 2), "SAME"), ((3, 7), (1, 4), "VALID"),
    ((5, 6), (3, 3), "VALID"), ((2, 10), (2, 3), "SAME VALID"), ((1, 8), (1, 1), ""),
    ((3, 5), (3, 3), ""),
])
def test_neighbours_are_gathered_together_where_rows_have_pairs(
    size: tuple[int, int], kernel: tuple[int, int], together: str, padding: str, tmp_path: Path
) -> None:
    """And where most of these see nothing beside the image."""
    if padding == "VALID" and any(k > n for k, n in zip(kernel, size, strict=True)):
        return
    n = Network(lambda low, high: high, 5)
    x = n.tensor((1, *size, 8))
    out = size if padding == "SAME" else tuple(
        n - k + 1 for n, k in zip(size, kernel, strict=True)
    )
    y = n.tensor((1, *out, 5))
    n.m.op("CONV_2D", [x, *n.weights((5, *kernel, 8), 0)], [y], padding=padding, stride=(1, 1))
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    value = n.rng.integers(-128, 128, (1, *size, 8)).astype(np.int8)
    expected = run(graph, operator_table.lower(context), value)
    for variant in smlad_channel_pairs.candidates(context):
        lowered = variant.make()
        pairs = variant.name.startswith("paired 2x") and padding in together
        assert ("bytes1" in dump(lowered.kernel)) == pairs, variant.name
        np.testing.assert_array_equal(run(graph, lowered, value), expected)


@pytest.mark.parametrize(("board", "kind"), [("mps2_an386", "arm_smlad"), ("mps2_an385", "mul")])
def test_targets_get_the_instructions_that_they_have(
    board: str, kind: str, tmp_path: Path
) -> None:
    content, _ = layer("dense", lambda low, high: high, 1)
    (tmp_path / "m.tflite").write_bytes(content)
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    lowered = lower(context, target_of(board), "balanced")
    assert ("arm_smlad" in repr(lowered.kernel)) == (kind == "arm_smlad")
    plain = lower(context, target_of(board), "size")
    assert plain.kernel == operator_table.lower(context).kernel


@pytest.mark.parametrize("channels", [1, 2, 3, 8, 40])
def test_few_registers_multiply_a_line_in_two_goes_at_least(channels: int, tmp_path: Path) -> None:
    n = Network(lambda low, high: (low + high) // 2, 3)
    x = n.tensor((1, 6, 6, channels))
    y, _ = n.window(x, (6, 6, channels), depthwise=False)
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    taps = math.prod(context.input(1).shape[1:])
    tiling = register_blocks.ARMV7M
    steps = {
        int(variant.name.split()[1]) for variant in register_blocks.candidates(context, "balanced")
    }
    assert steps == ({step for step in tiling.steps if 2 * step <= taps} or {tiling.steps[0]})
    everywhere = register_blocks.candidates(context, "balanced", register_blocks.RISCV)
    assert len(everywhere) == len(register_blocks.RISCV.steps)


M23 = """\
name: m23
extends: cortex_m23
description: Cortex-M23
memory:
  flash: {origin: 0x10000000, size: 4MiB}
  ram: {origin: 0x38000000, size: 4MiB}
counter: {kind: systick, hz: 20000000}
runner:
  kind: qemu
  command: [qemu-system-arm, -machine, mps2-an521]
  package: qemu-system-arm
"""


@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
def test_cortex_m23_gets_the_forms_of_m0(kind: str, tmp_path: Path) -> None:
    n = Network(lambda low, high: (low + high) // 2, 3)
    x = n.tensor((1, 6, 6, 8))
    y, _ = n.window(x, (6, 6, 8), depthwise=kind == "depthwise")
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    graph = load(tmp_path / "m.tflite")
    context = Context(graph, graph.nodes[0])
    small = target_of("qemu_cortex_m0")
    kernels = [
        lower(context, target, "balanced").kernel
        for target in (small, replace(small, triple="thumbv8m.base-none-none-eabi"))
    ]
    assert kernels[0] == kernels[1] != operator_table.lower(context).kernel


@pytest.mark.qemu
@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("board", [
    "mps2_an386", "mps2_an500", "mps2_an505", "mps2_an385", "qemu_cortex_m0", "cortex_m23",
    "qemu_riscv32",
])
def test_odd_layers_agree_on_the_machine(board: str, emit: str, tmp_path: Path) -> None:
    require("qemu-system-riscv32" if board == "qemu_riscv32" else "qemu-system-arm")
    rng = np.random.default_rng(5)
    n = Network(lambda low, high: int(rng.integers(low, high + 1)), 7)
    shape = (1, 9, 8, 3)
    x = n.tensor(shape)
    y, inner = n.window(x, shape[1:], depthwise=False)
    for depthwise in (True, False, True, False):
        y, inner = n.window(y, inner, depthwise=depthwise)
    y, _ = n.dense(y, int(np.prod(inner)))
    (tmp_path / "m.tflite").write_bytes(n.m.build([x], [y]))
    value = rng.integers(-128, 128, (3, *shape)).astype(np.int8)
    package = tmp_path / "m.tar"
    if board == "cortex_m23":  # the processor of mps2_an521 has its instructions
        board = str(tmp_path / "board.yaml")
        Path(board).write_text(M23)
    crtexport.export(tmp_path / "m.tflite", board=board, emit=emit, output=package)
    (given_,) = open_package(package).inputs
    result = crtexport.run(package, {given_.field: value}, board=board)
    graph = load(tmp_path / "m.tflite")
    for sample, row in zip(value, result.outputs, strict=True):
        np.testing.assert_array_equal(row[0], interpret(graph, [sample])[0])
