"""Weights of few bits, unpacked into scratch before a kernel for whole bytes runs.

A word in flash holds fields of 4 or 2 bits for several words that the kernel reads: the first
fields of its bytes make the first word, and so on. A field is a weight plus an offset that makes it
non-negative; AND, an addition and XOR turn four fields into bytes. Unpacking is done once per run,
so it costs little where a weight is multiplied for several pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from crtexport.ir.types import ConstantRef, DType
from crtexport.kir.analysis.kernel_merging import names_in
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    and_,
    const,
    i32,
    load,
    mul,
    shr,
    wrap_add,
    xor,
)
from crtexport.kir.language import Scalar
from crtexport.lowering.registry import (
    SCRATCH_ALIGN,
    Context,
    Derived,
    InputTensor,
    Lowered,
    Scratch,
)
from crtexport.lowering.weight_packing import (
    Array,
    BlockPacking,
    ByteLanes,
    Matrix,
    Packed,
    Packing,
    packed,
)
from crtexport.schedules.common.candidates import Candidate, changed
from crtexport.schedules.common.scratch_room import held, largest

SMALL = 1024
"""Bytes of weights that may be unpacked whatever memory the other nodes need."""


def of_bytes(context: Context) -> Context:
    """Returns a node with packed weights as if each weight had a byte."""
    graph = context.graph
    weights = graph.required(context.node, 1)
    whole = replace(graph.tensors[weights], packed_bits=None)
    tensors = (*graph.tensors[:weights], whole, *graph.tensors[weights + 1 :])
    return Context(replace(graph, tensors=tensors), context.node)


def candidates(
    context: Context, for_bytes: Sequence[Candidate], plain: Candidate, *, only_variants: bool
) -> list[Candidate]:
    """Returns variants of a node with packed weights: those that ``for_bytes`` has for bytes, each
    after a loop that unpacks them.

    There are none where bytes would take too much memory, or where kernels don't read bytes;
    ``plain`` takes the place of single ones that don't. ``only_variants``: all other variants are
    several times as slow, so the bytes may take as much memory as the largest node's tensors; else
    only as much as these leave.
    """
    room = largest(context.graph) - (0 if only_variants else held(context))
    if context.input(1).nbytes > max(SMALL, room):
        return []
    if not for_bytes or _unpacking(context, for_bytes[0].make()) is None:
        return []

    def change(lowered: Lowered) -> Lowered:
        return _unpacking(context, lowered) or plain.make()

    return [
        replace(variant, name=f"unpacked, {variant.name}") for variant in changed(for_bytes, change)
    ]


class BitFieldPacking(Packing, frozen=True):
    """Packs the result of another packing into fields of ``bits`` bits."""

    inner: Packing
    lanes: ByteLanes
    bits: int

    @property
    def several(self) -> int:
        """Returns the number of bytes, or of words of bytes, that share one."""
        return 8 // self.bits

    @property
    def block(self) -> int:
        return 4 * self.several * self.inner.block

    @property
    def lift(self) -> int:
        """Returns the offset that makes the weights in a lane non-negative."""
        return (1 << self.bits - 1) * sum(1 << 8 * i for i in range(self.lanes.nbytes))

    @property
    def mask(self) -> int:
        """Returns the mask of a word's first fields."""
        return _word(1, (1 << self.bits) - 1)

    @property
    def lowest(self) -> int:
        """Returns the number that turns fields into lanes: the least value of a lane, corrected for
        ``signs``."""
        return _word(self.lanes.nbytes, (self.lanes.plus or self._sign) - self.lift)

    @property
    def signs(self) -> int:
        """Returns the mask of the lanes' highest bits, where lanes are signed."""
        return _word(self.lanes.nbytes, 0 if self.lanes.plus else self._sign)

    @property
    def _sign(self) -> int:
        return 1 << 8 * self.lanes.nbytes - 1

    def nbytes(self, rows: int, columns: int) -> int:
        return -(-self.inner.nbytes(rows, columns) // (4 * self.several)) * 4

    def __call__(self, weights: Array) -> Array:
        lane = np.dtype(f"<u{self.lanes.nbytes}")
        lanes = np.ascontiguousarray(self.inner(weights)).reshape(-1).view(lane)
        fields = lanes + lane.type((self.lift - self.lanes.plus) % (2 * self._sign))
        whole = -(-fields.nbytes // (4 * self.several))
        words = np.zeros((whole, self.several), "<u4")
        words.reshape(-1).view("u1")[: fields.nbytes] = fields.view("u1")
        joined: Array = np.bitwise_or.reduce(
            words << np.arange(0, 8, self.bits, dtype=np.uint32), axis=1
        )
        return joined.view("<i4")


def _word(nbytes: int, lane: int) -> int:
    """Returns a word, as a signed number, in which each lane of ``nbytes`` bytes holds ``lane``."""
    return int.from_bytes(lane.to_bytes(nbytes, "little") * (4 // nbytes), "little", signed=True)


def _unpacking(context: Context, lowered: Lowered) -> Lowered | None:
    """Returns a kernel for bytes, preceded by the loop that unpacks them; None where the kernel's
    weights aren't bytes."""
    bits = context.packed_bits
    for number, arg in enumerate(lowered.args):
        weights: Matrix
        packing: Packing
        if arg == InputTensor(1):
            weights, packing = context.matrix(context.input(1).shape[0]), BlockPacking(1, 1)
        elif isinstance(arg, Derived) and isinstance(arg.data.made, Packed):
            weights, packing = arg.data.made.weights, arg.data.made.packing
        elif isinstance(arg, Derived) and _are_weights(context, arg):
            weights, packing = Matrix(arg.data, DType.INT8, 1, arg.data.nbytes), BlockPacking(1, 1)
        else:
            continue
        lanes = packing.byte_lanes
        if bits is not None and lanes is not None:
            fields = BitFieldPacking(packing, lanes, bits)
            return _behind(lowered, number, packed(weights, fields), fields)
    return None


def _are_weights(context: Context, arg: Derived) -> bool:
    """Returns whether a table has all weights, in whatever order."""
    count = context.input(1).elements
    if arg.dtype is not Scalar.I8 or arg.data.nbytes < count:
        return False
    found = np.concatenate([np.frombuffer(chunk, np.int8) for chunk in arg.data.chunks()])
    return set(np.unique(found)) <= {0, *np.unique(context.values(1)).tolist()}


def _behind(lowered: Lowered, number: int, data: ConstantRef, fields: BitFieldPacking) -> Lowered:
    """Returns a kernel preceded by a loop that unpacks ``data`` into its buffer ``number``."""
    kernel, several = lowered.kernel, fields.several
    unpacked = Scratch(-(-lowered.scratch // SCRATCH_ALIGN) * SCRATCH_ALIGN)
    stored = Derived(
        "weights", Scalar.I32, data,
        note=f"of {several} words of weights, {fields.bits} bits of each byte",
    )
    b = KernelBuilder(kernel.name)
    b.reserve(names_in(kernel))
    source = b.buffer("stored", Scalar.I32, data.nbytes // 4)
    words = b.buffer("words", Scalar.I32, source.size * several, writable=True, noalias=False)
    with b.loop("word", source.size) as word:
        both = b.let("several", load(source, word))
        for place in range(several):
            field = and_(shr(both, i32(fields.bits * place)), i32(fields.mask))
            value = xor(wrap_add(field, i32(fields.lowest)), i32(fields.signs))
            b.store(words, add(mul(word, const(several)), const(place)), value)
    made = b.finish()
    args = list(lowered.args)
    args[number] = unpacked
    return Lowered(
        replace(
            kernel, buffers=(*kernel.buffers, *made.buffers), body=(*made.body, *kernel.body),
            overlapping=(*kernel.overlapping, kernel.buffers[number].name, words.name),
        ),
        (*args, stored, unpacked),
    )
