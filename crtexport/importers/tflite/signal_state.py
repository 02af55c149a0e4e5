"""TensorFlow Lite Micro's operators of audio front ends that keep something between runs: as
operators on variables, as ``signal/micro/kernels`` has them.

SignalFramer and SignalStacker say whether they had enough samples already; until then their other
result is undefined there, and here what there is, after zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from crtexport.importers.tflite.operators import SourceOperator
from crtexport.importers.tflite.ops_detection import Options
from crtexport.ir.graph import Node, Tensor, Variable
from crtexport.ir.ops import (
    AssignVariable,
    Concatenation,
    FilterBankSpectralSubtraction,
    Op,
    OverlapAdd,
    ReadVariable,
    Reshape,
    Select,
    Slice,
    Tile,
)
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.support.errors import CrtExportError

Define = Callable[[Tensor], int]
"""Makes a tensor and returns its number."""
Expand = Callable[[SourceOperator, Define], list[Node]]

_LONGEST = 1 << 20
"""An upper bound of the samples that a microcontroller could keep, by far."""

_MOST_FRAMES = 256
"""Of one run: each is a node."""


class _Nodes:
    """The nodes of one operator, named after its first result."""

    def __init__(self, source: SourceOperator, define: Define, results: int) -> None:
        self.type = source.type(0)
        if len(source.outputs) != results or not self.type.shape or not self.type.elements:
            raise CrtExportError(f"{len(source.outputs)} results for {self.type}")
        self.source, self._define = source, define
        self.name = source.tensors.tensor(source.outputs[0]).name
        self.given = source.inputs[0]
        self.nodes: list[Node] = []
        self._numbers = itertools.count()

    def tensor(
        self, shape: tuple[int, ...], dtype: DType, constant: bytes | None = None,
        variable: Variable | None = None,
    ) -> int:
        """Returns a further tensor; with ``constant`` one that is known."""
        known = None if constant is None else ConstantRef(len(constant), constant)
        name = f"{self.name}/{next(self._numbers)}"
        return self._define(Tensor(name, TensorType(dtype, shape), known, variable))

    def add(self, op: Op, inputs: tuple[int | None, ...], *outputs: int) -> None:
        self.nodes.append(Node(op, inputs, outputs, self.name))

    def one(self, op: Op, inputs: tuple[int | None, ...], shape: tuple[int, ...],
            dtype: DType) -> int:
        """Returns the result of an operator."""
        self.add(op, inputs, result := self.tensor(shape, dtype))
        return result

    def variable(
        self, shape: tuple[int, ...], dtype: DType, start: bytes | None = None
    ) -> tuple[int, int]:
        """Returns a variable, of zeros or of ``start`` before the first run; and its value."""
        initial = None if start is None else ConstantRef(len(start), start)
        kept = self.tensor(shape, dtype, variable=Variable(initial))
        return kept, self.one(ReadVariable(), (kept,), shape, dtype)

    def joined(self, first: int, second: int | None, shape: tuple[int, ...], dtype: DType) -> int:
        """Returns two tensors behind each other along the last axis."""
        return self.one(Concatenation(len(shape) - 1), (first, second), shape, dtype)

    def part(self, shape: tuple[int, ...], begin: int, size: int) -> Slice:
        """Returns the operator that takes a part of the last axis of a tensor of ``shape``."""
        axes, cut = len(shape), (*shape[:-1], size)
        return Slice((*(0,) * (axes - 1), begin), cut, (1,) * axes, cut)

    def truth(self, output: int, pattern: list[bool], back: int) -> None:
        """A result that is true in the runs that ``pattern`` says, one after the other; then as it
        was ``back`` runs before, or true where that is 0."""
        if all(pattern):
            self.add(Reshape(()), (self.tensor((1,), DType.BOOL, b"\1"),), output)
            return
        count = len(pattern)
        kept, known = self.variable((count,), DType.BOOL, bytes(pattern))
        self.add(Slice((0,), (1,), (1,), ()), (known,), output)
        if back:
            last = self.one(self.part((count,), count - back, 1), (known,), (1,), DType.BOOL)
        else:
            last = self.tensor((1,), DType.BOOL, b"\1")
        longer = self.joined(known, last, (count + 1,), DType.BOOL)
        rest = self.one(self.part((count + 1,), 1, count), (longer,), (count,), DType.BOOL)
        self.add(AssignVariable(), (kept, rest))

    def check(self, position: int, dtype: DType, shape: tuple[int, ...]) -> None:
        """Refuses a result of another type in the file."""
        found = self.source.tensors.tensor(self.source.outputs[position]).type
        wanted = TensorType(dtype, shape)
        if (found.dtype, found.shape) != (dtype, shape):
            raise CrtExportError(f"result {position} is {found}, not {wanted}")


def _within(name: str, value: int, low: int, high: int = _LONGEST) -> int:
    if not low <= value <= high:
        raise CrtExportError(f"{name} must be from {low} to {high}, found {value}")
    return value


_SUBTRACTION = (
    "smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing",
    "min_signal_remaining", "smoothing_bits", "spectral_subtraction_bits",
)


def _spectral_subtraction(source: SourceOperator, define: Define) -> list[Node]:
    n, options = _Nodes(source, define, 2), Options(source)
    weights = {name: options.integer(name) for name in _SUBTRACTION}
    op = FilterBankSpectralSubtraction(clamping=bool(options.integer("clamping")), **weights)
    channels = options.integer("num_channels")
    if n.type.shape != (channels,):
        raise CrtExportError(f"{channels} channels for {n.type}")
    kept, before = n.variable(n.type.shape, DType.UINT32)
    n.add(op, (n.given, before), *source.outputs)
    n.add(AssignVariable(), (kept, source.outputs[1]))
    return n.nodes


def _delay(source: SourceOperator, define: Define) -> list[Node]:
    """As many samples late: the first ones of what was kept and what came."""
    n = _Nodes(source, define, 1)
    count, (*outer, size), dtype = (
        _within("delay_length", Options(source).integer("delay_length"), 0), n.type.shape,
        n.type.dtype,
    )
    n.check(0, DType.INT16, n.type.shape)
    if not count:
        n.add(Reshape(n.type.shape), (n.given,), source.outputs[0])
        return n.nodes
    kept, before = n.variable((*outer, count), dtype)
    whole = (*outer, count + size)
    joined = n.joined(before, n.given, whole, dtype)
    n.add(n.part(whole, 0, size), (joined,), source.outputs[0])
    rest = n.one(n.part(whole, size, count), (joined,), (*outer, count), dtype)
    n.add(AssignVariable(), (kept, rest))
    return n.nodes


def _framer(source: SourceOperator, define: Define) -> list[Node]:
    """Overlapping frames of what was kept and what came. ``prefill``: zeros come before the first
    sample, as many as a first frame lacks."""
    n, options = _Nodes(source, define, 2), Options(source)
    (*outer, samples), dtype, prefill = n.type.shape, n.type.dtype, options.integer("prefill")
    step = _within("frame_step", options.integer("frame_step"), 1, samples)
    size = _within("frame_size", options.integer("frame_size"), step if prefill else 1)
    if samples % step:
        raise CrtExportError(f"{samples} samples are no multiple of frames {step} apart")
    count = _within("the number of frames", samples // step, 1, _MOST_FRAMES)
    n.check(0, DType.INT16, (*outer, count, size))
    n.check(1, DType.BOOL, ())
    waits = 0 if prefill else -(-size // step) - 1
    left = size - step if prefill else waits * step
    whole, joined = (*outer, left + samples), n.given
    if left:
        kept, before = n.variable((*outer, left), dtype)
        joined = n.joined(before, n.given, whole, dtype)
        rest = n.one(n.part(whole, samples, left), (joined,), (*outer, left), dtype)
        n.add(AssignVariable(), (kept, rest))
    # The first frame of a run is the last one of which there is enough.
    runs = -(-waits // count)
    n.truth(source.outputs[1], [False] * runs or [True], 0)
    cuts = [n.part(whole, i * step, size) for i in range(count)]
    one = (*outer, 1, size)
    frames = [Slice(cut.begin, cut.size, cut.stride, one) for cut in cuts]
    if count == 1:
        n.add(frames[0], (joined,), source.outputs[0])
    else:
        parts = tuple(n.one(frame, (joined,), one, dtype) for frame in frames)
        n.add(Concatenation(len(outer)), parts, source.outputs[0])
    return n.nodes


def _stacker(source: SourceOperator, define: Define) -> list[Node]:
    """Returns nodes that stack the last frames, of which there are as many before the first one as
    ``left``, all like it."""
    n, options = _Nodes(source, define, 2), Options(source)
    channels, dtype = n.type.elements, n.type.dtype
    left, right = (
        _within(name, options.integer(name), 0)
        for name in ("stacker_left_context", "stacker_right_context")
    )
    step = _within("stacker_step", options.integer("stacker_step"), 1, left + right + 1)
    if n.type.shape != (options.integer("num_channels"),):
        raise CrtExportError(f"{options.integer('num_channels')} channels for {n.type}")
    others = channels * (left + right)
    n.check(0, DType.INT16, (others + channels,))
    n.check(1, DType.BOOL, ())
    n.truth(source.outputs[1], [run == right for run in range(right + step)], step)
    if not others:
        n.add(Reshape(n.type.shape), (n.given,), source.outputs[0])
        return n.nodes
    kept, before = n.variable((others,), dtype)
    if left:
        begun, known = n.variable((1,), DType.BOOL)
        copies = n.one(Tile((left + right,)), (n.given,), (others,), dtype)
        before = n.one(Select(), (known, before, copies), (others,), dtype)
        n.add(AssignVariable(), (begun, n.tensor((1,), DType.BOOL, b"\1")))
    n.add(Concatenation(0), (before, n.given), source.outputs[0])
    whole = (others + channels,)
    rest = n.one(n.part(whole, channels, others), (source.outputs[0],), (others,), dtype)
    n.add(AssignVariable(), (kept, rest))
    return n.nodes


def _overlap_add(source: SourceOperator, define: Define) -> list[Node]:
    n = _Nodes(source, define, 1)
    if len(n.type.shape) < 2:
        raise CrtExportError(f"{n.type} has no frames")
    *outer, count, size = n.type.shape
    step = _within("frame_step", Options(source).integer("frame_step"), 1, size)
    n.check(0, n.type.dtype, (*outer, count * step))
    if step == size:
        n.add(Reshape((*outer, count * step)), (n.given,), source.outputs[0])
        return n.nodes
    shape = (*outer, size - step)
    kept, before = n.variable(shape, n.type.dtype)
    after = n.tensor(shape, n.type.dtype)
    n.add(OverlapAdd(step), (n.given, before), source.outputs[0], after)
    n.add(AssignVariable(), (kept, after))
    return n.nodes


EXPANDED: Mapping[str, Expand] = {
    "SignalDelay": _delay,
    "SignalFilterBankSpectralSubtraction": _spectral_subtraction,
    "SignalFramer": _framer,
    "SignalOverlapAdd": _overlap_add,
    "SignalStacker": _stacker,
}
"""By the name of the custom operator."""
