"""Layers of drawn geometry, and their outputs as code: what tests of schedules have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import crtexport
from crtexport.firmware.board import load_board
from crtexport.firmware.board_schema import NativeRunner, QemuRunner
from crtexport.mlf.reader import open_package
from crtexport.pipeline.options import ExportChanges
from crtexport.simulation import library
from tests.helpers import require
from tests.tflite_builder import ModelBuilder

Array = np.ndarray[Any, Any]
Integer = Callable[[int, int], int]
"""Draws a number between two, which may be drawn, too."""

KINDS = ("conv", "depthwise", "pointwise", "dense")
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")

AS_CODE = pytest.mark.parametrize("where", [
    "c here", *(pytest.param(emit, marks=pytest.mark.qemu) for emit in ("c", "llvm")),
])
"""Places where :func:`outputs_as_code` runs a package, and what is in it."""


def search(examples: int) -> settings:
    """Returns settings that draw so many layers."""
    return settings(
        max_examples=examples, deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def drawing(data: st.DataObject) -> Integer:
    """Draws from what Hypothesis has."""
    return lambda low, high: data.draw(st.integers(low, high))


def positions(
    integer: Integer, sizes: Sequence[int], window: Sequence[int], stride: Sequence[int],
    dilation: Sequence[int] = (1, 1),
) -> tuple[str, tuple[int, ...]]:
    """A kind of padding with which a window has places, and how many those are along each axis."""
    span = tuple((k - 1) * d + 1 for k, d in zip(window, dilation, strict=True))
    fits = all(k <= size for k, size in zip(span, sizes, strict=True))
    padding = ("SAME", "VALID")[integer(0, 1)] if fits else "SAME"
    return padding, tuple(
        -(-size // s) if padding == "SAME" else -(-(size - k + 1) // s)
        for size, k, s in zip(sizes, span, stride, strict=True)
    )


class Layers(ABC):
    """Weighted layers beside each other, each with an input and an output of its own.

    Subclasses say what tensors hold and how large layers get.
    """

    sides: int  # most rows and columns of an image
    units: int  # most outputs of a channel's place
    taps: int  # most rows and columns of a window
    dilations: tuple[int, int]  # of rows and columns, the largest

    def __init__(self, integer: Integer, seed: int) -> None:
        self.integer, self.rng, self.m = integer, np.random.default_rng(seed), ModelBuilder()
        self.count = 0

    def name(self) -> str:
        """Of one more tensor."""
        self.count += 1
        return f"t{self.count}"

    @abstractmethod
    def tensor(self, shape: tuple[int, ...]) -> int:
        """An input or output."""

    @abstractmethod
    def weights(self, shape: tuple[int, ...], axis: int) -> list[int | None]:
        """Weights with their outputs along ``axis``, and perhaps a bias."""

    @abstractmethod
    def values(self, shape: tuple[int, ...]) -> Array:
        """Returns numbers that an input may hold."""

    @abstractmethod
    def channels(self, kind: str) -> int:
        """Of the image that a layer reads."""

    def depth(self) -> int:
        """Returns the number of inputs that each output of a fully connected layer has."""
        return self.integer(1, 40)

    def multiplier(self) -> int:
        """Returns the number of outputs that a depthwise layer has of each channel."""
        return 1

    def add(self, kind: str) -> tuple[tuple[int, ...], int, int]:
        """(shape of the input, input, output) of one more layer, one of :data:`KINDS`."""
        integer = self.integer
        activation = ACTIVATIONS[integer(0, 3)]
        if kind == "dense":
            depth = self.depth()
            shape: tuple[int, ...] = (integer(1, 5), depth)
            x, units = self.tensor(shape), integer(1, self.units)
            y = self.tensor((shape[0], units))
            self.m.op(
                "FULLY_CONNECTED", [x, *self.weights((units, depth), 0)], [y],
                activation=activation,
            )
            return shape, x, y
        shape = (
            integer(1, 2), integer(1, self.sides), integer(1, self.sides), self.channels(kind)
        )
        x = self.tensor(shape)
        most = 1 if kind == "pointwise" else self.taps
        kernel, stride = (integer(1, most), integer(1, most)), (integer(1, 2), integer(1, 2))
        dilation = integer(1, self.dilations[0]), integer(1, self.dilations[1])
        padding, out = positions(integer, shape[1:3], kernel, stride, dilation)
        depthwise = kind == "depthwise"
        multiplier = self.multiplier() if depthwise else 1
        units = shape[3] * multiplier if depthwise else integer(1, self.units)
        y = self.tensor((shape[0], *out, units))
        w_shape = (1, *kernel, units) if depthwise else (units, *kernel, shape[3])
        self.m.op(
            "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D",
            [x, *self.weights(w_shape, 3 if depthwise else 0)], [y],
            padding=padding, stride=stride, dilation=dilation, activation=activation,
            **({"depth_multiplier": multiplier} if depthwise else {}),
        )
        return shape, x, y

    def write(self, folder: Path, layers: Sequence[tuple[tuple[int, ...], int, int]]) -> Path:
        """A file with ``layers`` in ``folder``."""
        path = folder / "m.tflite"
        path.write_bytes(self.m.build([x for _, x, _ in layers], [y for _, _, y in layers]))
        return path


def outputs_as_code(
    model: Path, values: Sequence[Array], board: str, where: str,
    **changes: Unpack[ExportChanges],
) -> Sequence[Sequence[Array]]:
    """The outputs of a model's code for each sample of ``values``, which has an array of samples
    for each input: C on this computer ("c here"), or "c" or "llvm" on the board, which is emulated
    or is this computer."""
    package = model.with_suffix(".tar")
    # Layers have more inputs together than a registry can pass.
    changes |= {"emit": "llvm" if where == "llvm" else "c", "system_lib": False}
    crtexport.export(model, board=board, output=package, **changes)
    inputs = open_package(package).inputs
    given = {t.field: value for t, value in zip(inputs, values, strict=True)}
    if where == "c here":
        # Instructions of other processors are many lines of C, for which -O2 takes three times
        # as long.
        with patch.object(library, "_CFLAGS", (*library._CFLAGS, "-O1")):
            return [list(row.values()) for row in crtexport.simulate(package, given)]
    runner = load_board(board).runner
    assert isinstance(runner, QemuRunner | NativeRunner)
    if isinstance(runner, QemuRunner):
        require(runner.command[0])
    return crtexport.run(package, given).outputs
