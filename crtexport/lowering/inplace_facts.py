"""Computes where a kernel's output may overlap an input that dies with the node, and whether it
only copies.

A byte of an input may be overwritten once the kernel has read it for the last time, which follows
from the order of accesses in the Kernel IR. So even a convolution can write its output over its
input, a few rows behind what it still reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.analysis.accesses import Access, accesses, touching
from crtexport.kir.analysis.address_intervals import Bounds, Floats, Grid, addresses, hulls, parts
from crtexport.kir.analysis.channel_loop import channel_loop
from crtexport.kir.language import Kernel
from crtexport.lowering.facts import ByteMove, Facts, Freedom, Freedoms
from crtexport.lowering.registry import InputTensor, Lowered, OutputTensor

GRID_LIMIT = 1 << 20
"""Most points of outer loops that are told apart; loops further inside count as a whole."""
ALIGNMENT = 16
"""Distances that aren't multiples of this are of no use to a planner that aligns."""
SHARE_LIMIT = 1 << 26
"""Most bytes of a tensor whose last accesses are told apart, so that it may share them."""
PAIRS_LIMIT = 64
"""Most pairs of an input and an output of one node that are told apart; each takes a look at the
whole kernel, and one input of so many is worth little."""
COPY_LIMIT = 1 << 22
"""Most elements of a node whose copies are followed one by one."""

Listed = tuple[Access, ...]


Analyze = Callable[[Lowered, Callable[[], Kernel | None]], Facts]
"""Returns the facts of a kernel; the second argument makes the kernel that runs backwards."""


class FactsByKernel:
    """:func:`kernel_facts`, computed once for kernels that are equal."""

    def __init__(self) -> None:
        self._known: dict[tuple[Kernel, tuple[object, ...]], Facts] = {}

    def __call__(self, lowered: Lowered, reverse: Callable[[], Kernel | None]) -> Facts:
        roles = tuple(
            arg if isinstance(arg, InputTensor | OutputTensor) else None for arg in lowered.args
        )
        key = (lowered.kernel, roles)
        if key not in self._known:
            self._known[key] = kernel_facts(lowered, reverse)
        return self._known[key]


def kernel_facts(lowered: Lowered, reverse: Callable[[], Kernel | None]) -> Facts:
    """Returns the facts of ``lowered``; ``reverse`` returns the kernel with reversed loops."""
    inputs, outputs = _sides(lowered, InputTensor), _sides(lowered, OutputTensor)
    part = touching(lowered.kernel, _names(*inputs.values(), *outputs.values()))
    listed = accesses(part)
    return Facts(
        forward=_Freedoms(part, listed, inputs, outputs),
        reversed=lambda: _reversed(lowered, reverse()),
        moves=_moves(part, listed, inputs, outputs),
        reads=_traffic(listed, inputs),
        writes=_traffic(listed, outputs),
        scratch=lowered.scratch,
    )


def _traffic(listed: Listed, sides: Sides) -> dict[int, int]:
    """Returns the number of accesses to each tensor of one side, including those that depend on
    conditions."""
    return {
        position: sum(
            math.prod(extent or 1 for _, extent in access.loops)
            for access in listed if access.buffer.name in side.names
        )
        for position, side in sides.items()
    }


def _reversed(lowered: Lowered, reverse: Kernel | None) -> Freedoms | None:
    if reverse is None:
        return None
    inputs, outputs = _sides(lowered, InputTensor), _sides(lowered, OutputTensor)
    part = touching(reverse, _names(*inputs.values(), *outputs.values()))
    return _Freedoms(part, accesses(part), inputs, outputs)


class _Side(Struct, frozen=True):
    """One tensor: the names of the buffers bound to it and its size in bytes."""

    names: frozenset[str]
    nbytes: int


Sides = dict[int, _Side]
"""The tensors of one side of a node, by position."""


def _names(*sides: _Side) -> frozenset[str]:
    """Returns the names of the buffers bound to some tensors."""
    return frozenset().union(*(side.names for side in sides))


def _sides(lowered: Lowered, kind: type[InputTensor] | type[OutputTensor]) -> Sides:
    found: Sides = {}
    for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True):
        if isinstance(arg, kind):
            before = found.get(arg.position, _Side(frozenset(), 0))
            nbytes = max(before.nbytes, buffer.size * buffer.dtype.itemsize)
            found[arg.position] = _Side(before.names | {buffer.name}, nbytes)
    return found


class _Freedoms(Mapping[tuple[int, int], Freedom]):
    """The freedom of each pair (output, input) of a kernel, computed on first use: for constants,
    and for inputs that are read again later, it is never needed."""

    def __init__(self, kernel: Kernel, listed: Listed, inputs: Sides, outputs: Sides) -> None:
        """``listed``: the accesses of ``kernel``."""
        self._kernel, self._listed = kernel, listed
        self._inputs, self._outputs = inputs, outputs
        self._known: dict[tuple[int, int], Freedom | None] = {}

    def __getitem__(self, pair: tuple[int, int]) -> Freedom:
        if pair not in self._known:
            self._known[pair] = self._found(*pair)
        freedom = self._known[pair]
        if freedom is None:
            raise KeyError(pair)
        return freedom

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (pair for pair in product(self._outputs, self._inputs) if self.get(pair) is not None)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _found(self, o: int, i: int) -> Freedom | None:
        """Returns the freedom of a pair; None where the two must not share any bytes."""
        output, source = self._outputs.get(o), self._inputs.get(i)
        if output is None or source is None or max(output.nbytes, source.nbytes) > SHARE_LIMIT:
            return None
        if len(self._outputs) * len(self._inputs) > PAIRS_LIMIT:
            return None
        freedom = _freedom(self._kernel, self._listed, output, source)
        freedom = replace(freedom, exact=_interleaved(self._kernel, output, source, freedom))
        some = freedom.exact or freedom.before > -output.nbytes or freedom.after < source.nbytes
        return freedom if some else None


def _interleaved(
    kernel: Kernel, output: _Side, source: _Side, freedom: Freedom
) -> tuple[int, ...]:
    """Returns the distances at which a kernel that processes channel by channel overlaps only bytes
    of the same channel."""
    if freedom.before + 1 >= freedom.after:
        return ()  # as all distances are allowed
    names = _names(output, source)
    found = channel_loop(kernel, names)
    sizes = {b.dtype.itemsize for b in kernel.buffers if b.name in names}
    if found is None or len(sizes) != 1:
        return ()
    other = found.of_one_channel(kernel)
    alone = _freedom(other, accesses(other), output, source)
    unit = math.lcm(found.count * sizes.pop(), ALIGNMENT)
    closest = (alone.before // unit * unit, -(-alone.after // unit) * unit)
    return tuple(d for d in closest if freedom.before < d < freedom.after)


def _freedom(kernel: Kernel, listed: Listed, output: _Side, source: _Side) -> Freedom:
    """Returns the distances at which the output may begin from the input."""
    pairs = [
        _Pair.of(stores, reads) for stores, reads in product(*_groups(listed, output, source))
    ]
    before, after = math.inf, -math.inf
    for grid in dict.fromkeys(pair.grid for pair in pairs):
        mine = [pair for pair in pairs if pair.grid == grid]
        groups = {
            access.number: group[0].number
            for pair in mine for group in (pair.stores, pair.reads) for access in group
        }
        later = [_Later() for _ in mine]
        for part in reversed([*parts(grid)]):
            touched = hulls(kernel, grid, groups, part)
            for pair, unread in zip(mine, later, strict=True):
                low, high = pair.distances(touched, unread)
                before, after = min(before, low), max(after, high)
    if before >= after - 1:
        return Freedom(0, 0)
    return Freedom(int(max(before, -output.nbytes)), int(min(after, source.nbytes)))


Group = list[Access]
"""Accesses of one kind in the same loops, neighbours in the text: they have the same relation to
all others."""


def _groups(listed: Listed, output: _Side, source: _Side) -> tuple[list[Group], list[Group]]:
    """Returns the stores to an output and the loads of an input, in groups."""
    stores: list[Group] = []
    reads: list[Group] = []
    relevant = (a for a in listed if a.buffer.name in (output if a.stores else source).names)
    for kind, group in groupby(relevant, key=lambda a: (a.stores, a.loops, a.buffer.dtype)):
        (stores if kind[0] else reads).append(list(group))
    return stores, reads


class _Later(Struct):
    """The smallest and the largest element that is read after some part of a grid."""

    least: float = math.inf
    most: float = -math.inf


class _Pair(Struct, frozen=True):
    """Stores, and loads whose elements they may overwrite. ``grid``: the loops around both whose
    iterations are distinguished. ``first``: in an iteration, all loads come before the stores."""

    stores: Group
    reads: Group
    grid: Grid
    first: bool

    @staticmethod
    def of(stores: Group, reads: Group) -> _Pair:
        store, read = stores[0], reads[0]
        common = 0
        for mine, other in zip(store.loops, read.loops, strict=False):
            if mine != other or mine[1] is None:
                break
            common += 1
        grid = _limited(store.loops[:common])
        whole = len(grid) == common and not _shared_further(store, read, common)
        return _Pair(stores, reads, grid, whole and read.number < store.number)

    def distances(self, touched: Mapping[int, Bounds], later: _Later) -> tuple[float, float]:
        """Returns (largest distance behind, smallest distance ahead) that the stores allow.
        ``touched``: the elements that each group accesses at each point of a part of the grid, by
        its first access; ``later``: the elements that are read in the parts behind it, to which
        those of this part are added."""
        store, read = self.stores[0], self.reads[0]
        written, reading = touched[store.number], touched[read.number]
        unread = _suffix(reading[0], np.minimum, later.least, self.first)
        rest = _suffix(reading[1], np.maximum, later.most, self.first)
        later.least = min(later.least, float(reading[0].min(initial=math.inf)))
        later.most = max(later.most, float(reading[1].max(initial=-math.inf)))
        size, item = read.buffer.dtype.itemsize, store.buffer.dtype.itemsize
        happens = np.isfinite(written[0]) & np.isfinite(unread)
        if not happens.any():
            return math.inf, -math.inf
        behind = unread[happens] * size - (written[1][happens] + 1) * item
        ahead = (rest[happens] + 1) * size - written[0][happens] * item
        return float(behind.min()), float(ahead.max())


def _shared_further(store: Access, read: Access, common: int) -> bool:
    """Returns whether both are in a further common loop, of unknown extent."""
    return (
        len(store.loops) > common and len(read.loops) > common
        and store.loops[common] == read.loops[common]
    )


def _limited(loops: tuple[tuple[str, int | None], ...]) -> Grid:
    """Returns the outermost of ``loops`` that form a grid of manageable size."""
    grid: list[tuple[str, int]] = []
    points = 1
    for name, extent in loops:
        if extent is None or points * extent > GRID_LIMIT:
            break
        points *= extent
        grid.append((name, extent))
    return tuple(grid)


def _suffix(
    values: Floats, extreme: np.ufunc, later: float, exclusive: bool
) -> Floats:
    """Returns at each point the extreme of ``values`` from there on (``exclusive``: after it) and
    of ``later``."""
    run: Floats = extreme.accumulate(np.append(values, later)[::-1])[::-1]
    return run[1:] if exclusive else run[:-1]


# ---- copies


def _moves(
    kernel: Kernel, listed: Listed, inputs: Sides, outputs: Sides
) -> tuple[ByteMove, ...] | None:
    """Returns the stretches of bytes that a node copies; None if it does anything else. ``listed``:
    the accesses of ``kernel``."""
    stores = [a for a in listed if a.stores]
    if not stores or any(s.copies is None or s.conditional for s in stores):
        return None
    if sum(_traffic(listed, outputs).values()) > COPY_LIMIT:
        return None
    found: list[ByteMove] = []
    for store in stores:
        load = listed[store.copies if store.copies is not None else 0]
        output, source = _owner(outputs, store), _owner(inputs, load)
        same = load.buffer.dtype is store.buffer.dtype
        if output is None or source is None or not same or load.loops != store.loops:
            return None
        stretch = _stretch(kernel, store, load)
        if stretch is None:
            return None
        found.append(ByteMove(output, source, *stretch))
    return tuple(found) if _complete(found, outputs) else None


def _owner(sides: Sides, access: Access) -> int | None:
    return next((p for p, side in sides.items() if access.buffer.name in side.names), None)


def _stretch(kernel: Kernel, store: Access, load: Access) -> tuple[int, int, int] | None:
    """Returns (first byte written, first byte read, bytes) of a copied stretch."""
    grid = tuple((name, extent) for name, extent in store.loops if extent is not None)
    points = math.prod(extent for _, extent in grid)
    if len(grid) < len(store.loops) or not points:
        return None
    written: list[Floats] = []
    shift: float | None = None
    for part in parts(grid):
        found = addresses(kernel, grid, (store.buffer.name, load.buffer.name), part)
        (to, to_high), (source, source_high) = found[store.number], found[load.number]
        exact = np.array_equal(to, to_high) and np.array_equal(source, source_high)
        if not exact or not np.isfinite(to).all():
            return None
        shift = float(to[0] - source[0]) if shift is None else shift
        if not (to - source == shift).all():
            return None
        written.append(to)
    least = int(min(to.min() for to in written))
    if max(to.max() for to in written) - least + 1 != points:
        return None
    reached = np.zeros(points, np.bool_)
    for to in written:
        reached[(to - least).astype(np.int64)] = True
    if shift is None or not reached.all():
        return None
    item = store.buffer.dtype.itemsize
    return least * item, (least - int(shift)) * item, points * item


def _complete(moves: Iterable[ByteMove], outputs: Sides) -> bool:
    """Returns whether each byte of each output is written exactly once."""
    ends = dict.fromkeys(outputs, 0)
    for move in sorted(moves, key=lambda m: (m.output, m.target)):
        if move.target != ends[move.output]:
            return False
        ends[move.output] += move.nbytes
    return all(ends[o] == side.nbytes for o, side in outputs.items())
