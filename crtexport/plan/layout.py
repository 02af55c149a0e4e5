"""Groups tensors at fixed distances into blocks that get offsets.

Tensors whose distance is fixed form one block: a reshape and the tensor that it views, the parts of
a concatenation that needs no copy. A block lies in the workspace, or in a buffer of the caller.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Cascade, Reshape
from crtexport.lowering.facts import ByteMove, Facts, Freedom
from crtexport.plan.arena import Arena, Ban
from crtexport.plan.live_blocks import Bans, LiveBlocks, Part
from crtexport.plan.liveness import Lifetime, lifetimes
from crtexport.plan.model import Placement, ScratchRange, Space
from crtexport.plan.spans import Spans, meetings, pairs

NO_FACTS = Facts()

_PAIRS = 40_000
"""The largest number of pairs of simultaneously live tensors that are listed for placement."""
_STRETCHES, _FEW_STRETCHES = 120_000, 500
"""Ranges of a block up to which it is joined with any other; larger ones only with small ones.
Else hundreds of nested concatenations would take time with the cube of their number."""


class TensorBlock(Struct):
    """Tensors at fixed distances: ``starts`` has the first byte of each, relative to the block.

    ``number`` is that of one of its tensors; each tensor is in one block. ``home`` is the buffer
    and offset at which it lies, None for a block of the workspace.
    """

    number: int
    starts: dict[int, int]
    home: Placement | None = None


class _Stretch(Struct, frozen=True):
    """Bytes of a block that hold bytes of a value, which begins at byte ``base`` of the block."""

    start: int
    end: int
    value: int
    base: int


_Contents = MutableMapping[int, tuple[_Stretch, ...]]


class Layout:
    """The blocks of a graph in one order of execution.

    ``views`` are nodes that need not run; ``free`` has, for pairs (input tensor, output tensor),
    the distances that their node allows. A node's scratch is one more tensor, numbered after the
    graph's, live while it runs. ``shared`` is that of the plan.
    """

    def __init__(
        self, graph: Graph, order: tuple[int, ...], facts: Mapping[int, Facts],
        io_in_workspace: bool, views_of_parts: bool, alignment: int, directions: int,
        shared: frozenset[int] = frozenset(),
    ) -> None:
        self.graph, self.order, self.facts, self.shared = graph, order, facts, shared
        self.io_in_workspace, self.views_of_parts = io_in_workspace, views_of_parts
        self.alignment, self.directions = alignment, directions
        self.block_of: dict[int, TensorBlock] = {}
        self.views: set[int] = set()
        self.free: dict[tuple[int, int], Freedom] = {}
        self.lifetimes = lifetimes(self.graph, self.order)
        self._sizes = [tensor.type.nbytes for tensor in graph.tensors]
        self._inputs, self._outputs = _numbered(graph.inputs), _numbered(graph.outputs)
        self.states, self.state_size = _states(self.graph, self.alignment)
        self._contents: dict[int, tuple[_Stretch, ...]] = {}
        self._pinned: dict[int, int] = {}
        fed = (n for n in graph.nodes if isinstance(n.op, Cascade) and n.op.fed)
        self._by_rows = {tensor for node in fed for tensor in node.outputs}
        self._effort = 0
        for tensor in self.lifetimes:
            self.block_of[tensor] = TensorBlock(tensor, {tensor: 0}, self._anchor(tensor))
            self._contents[tensor] = (_Stretch(0, self._sizes[tensor], tensor, 0),)
        for position, number in enumerate(self.order):
            self._pin(number, position)
        for number in self.order:
            self._try_view(number)
        for position, number in enumerate(self.order):
            if number not in self.views:
                self._free_pairs(number, position)
                self._add_scratch(number, position)
        if not self.io_in_workspace:
            self._use_output_buffers()

    def _anchor(self, tensor: int) -> Placement | None:
        if self.graph.constant(tensor) is not None:
            return Placement(Space.CONSTANT, tensor)
        if self.graph.tensors[tensor].variable is not None:
            return Placement(Space.STATE, offset=self.states[tensor])
        if self.io_in_workspace:
            return None
        if tensor in self._inputs:
            number = self._inputs[tensor]
            return Placement(Space.OUTPUT if number in self.shared else Space.INPUT, number)
        if tensor in self._outputs:
            return Placement(Space.OUTPUT, self._outputs[tensor])
        return None

    def size(self, tensor: int) -> int:
        """Returns the bytes of a tensor, or of a node's scratch."""
        node = tensor - len(self._sizes)
        return self.facts[node].scratch if node >= 0 else self._sizes[tensor]

    def _item(self, tensor: int) -> int:
        """Returns the alignment of a tensor's offset, or of that of a node's scratch."""
        scratch = tensor >= len(self.graph.tensors)
        return self.alignment if scratch else self.graph.type(tensor).dtype.itemsize

    def _add_scratch(self, number: int, position: int) -> None:
        scratch = len(self.graph.tensors) + number
        if self.facts.get(number, NO_FACTS).scratch and scratch not in self.block_of:
            self.lifetimes[scratch] = Lifetime(position, position)
            self.block_of[scratch] = TensorBlock(scratch, {scratch: 0})

    def _pin(self, number: int, position: int) -> None:
        """Puts a node's scratch and the tensors that must lie in it into one block."""
        pins = self.facts.get(number, NO_FACTS).pins
        if not pins:
            return
        scratch = len(self.graph.tensors) + number
        whole = TensorBlock(scratch, {scratch: 0, **pins})
        for tensor in whole.starts:
            if tensor in self.block_of and (
                len(self.block_of[tensor].starts) > 1 or self.block_of[tensor].home is not None
            ):
                raise ValueError(f"tensor {tensor} can't lie in the scratch of node {number}")
            self.block_of[tensor] = whole
            self._pinned.setdefault(tensor, scratch)
        kept = self.facts.get(number, NO_FACTS).kept
        self.lifetimes[scratch] = Lifetime(position, len(self.order) if kept else position)
        self._contents[scratch] = (_Stretch(0, self.size(scratch), scratch, 0),)

    def scratch(self, number: int, places: Mapping[int, tuple[int, int]]) -> ScratchRange | None:
        """Returns a node's scratch, given the pools and offsets of tensors in the workspace."""
        tensor = len(self.graph.tensors) + number
        if tensor not in places:
            return None
        pool, offset = places[tensor]
        return ScratchRange(offset, self.size(tensor), pool)

    @property
    def blocks(self) -> list[TensorBlock]:
        """Returns every block once, in the order of its first tensor."""
        return list({block.number: block for block in self.block_of.values()}.values())

    # -- views

    def _try_view(self, number: int) -> None:
        """Makes a node that only copies a view, if its tensors can share bytes."""
        node = self.graph.nodes[number]
        moves = self._moves(number, node)
        if moves is None or not self._join(node, moves):
            return
        self.views.add(number)

    def _moves(self, number: int, node: Node) -> tuple[ByteMove, ...] | None:
        if isinstance(node.op, Reshape):
            return (ByteMove(0, 0, 0, 0, self.size(node.outputs[0])),)
        moves = self.facts.get(number, NO_FACTS).moves
        return moves if self.views_of_parts else None

    def _join(self, node: Node, moves: tuple[ByteMove, ...]) -> bool:
        """Joins the blocks of a node's tensors if possible; returns whether it did."""
        merged = dict(self.block_of[node.outputs[0]].starts)
        home = self.block_of[node.outputs[0]].home
        origin = merged[node.outputs[0]]
        pending = list(moves)
        shift = {node.outputs[0]: origin}
        while pending:
            move = next((
                m for m in pending
                if node.outputs[m.output] in shift or node.inputs[m.input] in shift
            ), None)
            if move is None:
                return False
            pending.remove(move)
            output, source = node.outputs[move.output], self.graph.required(node, move.input)
            known, other, distance = (
                (output, source, move.target - move.source) if output in shift
                else (source, output, move.source - move.target)
            )
            start = shift[known] + distance
            if shift.setdefault(other, start) != start:
                return False
            block = self.block_of[other]
            base = start - block.starts[other]
            if any(merged.setdefault(t, base + s) != base + s for t, s in block.starts.items()):
                return False
            if block.home is not None and block is not self.block_of[node.outputs[0]]:
                placed = Placement(block.home.space, block.home.index, block.home.offset - base)
                if home is not None and home != placed:
                    return False
                home = placed
        views = self._views(node, moves)
        if not self._agrees(merged, home, ChainMap(views, self._contents)):
            return False
        self._contents |= views
        whole = TensorBlock(node.outputs[0], merged, home)
        for tensor in merged:
            self.block_of[tensor] = whole
        return True

    def _views(
        self, node: Node, moves: tuple[ByteMove, ...]
    ) -> dict[int, tuple[_Stretch, ...]]:
        """Returns the ranges of the node's outputs if they are views."""
        found: dict[int, list[_Stretch]] = {t: [] for t in node.outputs}
        for move in moves:
            source = self.graph.required(node, move.input)
            for part in self._contents[source]:
                start = max(part.start, move.source)
                end = min(part.end, move.source + move.nbytes)
                if start < end:
                    shift = move.target - move.source
                    found[node.outputs[move.output]].append(_Stretch(
                        start + shift, end + shift, part.value, part.base + start - part.start
                    ))
        return {tensor: tuple(parts) for tensor, parts in found.items()}

    def _agrees(
        self, starts: dict[int, int], home: Placement | None,
        contents: _Contents,
    ) -> bool:
        """Returns whether tensors that overlap while both are live hold the same values there."""
        if not self._affordable(starts, contents):
            return False
        if home is not None and not self._fits(starts, home, contents):
            return False
        least = min(starts.values())
        if any((start - least) % self._item(t) for t, start in starts.items()):
            return False
        parts = [
            (starts[t] + p.start, starts[t] + p.end, (p.value, starts[t] + p.start - p.base), t)
            for t in starts for p in contents[t]
        ]
        parts.sort()
        ends: list[tuple[int, int, tuple[int, int]]] = []
        there: dict[tuple[int, int], dict[int, int]] = {}
        for number, (start, end, value, tensor) in enumerate(parts):
            while ends and ends[0][0] <= start:
                _, gone, held = heappop(ends)
                del there[held][gone]
                if not there[held]:
                    del there[held]
            if any(
                self._spoil(tensor, other)
                for held, others in there.items() if held != value for other in others.values()
            ):
                return False
            there.setdefault(value, {})[number] = tensor
            heappush(ends, (end, number, value))
        return True

    def _spoil(self, first: int, second: int) -> bool:
        """Returns whether two tensors with different values at the same bytes conflict."""
        pinned = self._pinned.get(first, -1) == self._pinned.get(second, -2)
        return not pinned and self.lifetimes[first].meets(self.lifetimes[second])

    def _affordable(self, starts: dict[int, int], contents: _Contents) -> bool:
        """Returns whether a block is small enough to be checked as a whole again."""
        effort = sum(len(contents[tensor]) for tensor in starts)
        self._effort += effort
        return effort <= _FEW_STRETCHES or self._effort <= _STRETCHES

    def _fits(
        self, starts: dict[int, int], home: Placement,
        contents: _Contents,
    ) -> bool:
        """Returns whether a block may lie in a buffer of the caller or in a constant."""
        for tensor, start in starts.items():
            offset = home.offset + start
            if tensor >= len(self.graph.tensors):
                return False  # scratch only lies in the workspace
            if home.space is Space.STATE:
                return False  # a variable may change while a view is live
            if home.space is Space.OUTPUT:
                capacity = self.size(self.graph.outputs[home.index])
                if offset < 0 or offset + self.size(tensor) > capacity or tensor in self._by_rows:
                    return False  # buffers of outputs are passed only after all rows
                continue
            owner = home.index if home.space is Space.CONSTANT else self.graph.inputs[home.index]
            if any(part.value != owner for part in contents[tensor]):
                return False  # nothing may write there
            if tensor in self._outputs:
                return False
            if home.space is Space.CONSTANT and (offset or self.size(tensor) != self.size(owner)):
                return False
        return True

    # -- what may overlap

    def _free_pairs(self, number: int, position: int) -> None:
        """Records which outputs of a node may lie over inputs that no later node reads."""
        node = self.graph.nodes[number]
        facts = self.facts.get(number, NO_FACTS)
        pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for o, output in enumerate(node.outputs):
            for i, source in enumerate(node.inputs):
                if source is None or self.graph.constant(source) is not None:
                    continue
                if self.lifetimes[source].last <= position:
                    pairs.setdefault((source, output), []).append((o, i))
        for (source, output), places in pairs.items():
            apart = Freedom(-self.size(output), self.size(source))
            forward = _all_of([facts.forward.get(p, apart) for p in places])
            free = forward.before + 1 >= forward.after  # and no direction allows more
            asked = self.directions > 1 and len(pairs) == 1 and not free
            backward = facts.backward if asked else None
            if backward is not None:
                other = _all_of([backward.get(p, apart) for p in places])
                forward = Freedom(
                    max(forward.before, other.before), min(forward.after, other.after),
                    (*forward.exact, *other.exact),
                )
            if forward != apart:
                self.free[source, output] = forward

    def apart(self, first: int, second: int) -> tuple[tuple[int, int], ...]:
        """Returns the banned distances from ``first`` to ``second``, as bounds."""
        sizes = self.size(first), self.size(second)
        if not (sizes[0] and sizes[1] and self.lifetimes[first].meets(self.lifetimes[second])):
            return ()
        freedom = self.free.get((first, second))
        if freedom is not None:
            return freedom.bans()
        freedom = self.free.get((second, first))
        if freedom is not None:
            return tuple((-high, -low) for low, high in freedom.bans())
        return ((-sizes[1], sizes[0]),)

    # -- the caller's buffers

    def spoilt(self) -> list[int]:
        """Returns the shared buffers in which an output would overwrite bytes of its input that are
        still read."""
        found = []
        for number in sorted(self.shared):
            first, second = (
                self.block_of[t] for t in (self.graph.inputs[number], self.graph.outputs[number])
            )
            if first is not second and any(
                low < 0 < high for low, high in self.between(first, second)
            ):
                found.append(number)
        return found

    def _use_output_buffers(self) -> None:
        """Moves inputs that the producer of an output may overwrite into the output's buffer."""
        producer = {t: node for node in self.graph.nodes for t in node.outputs}
        pending = [t for t in self.graph.outputs if t in producer]
        over: dict[int, list[int]] = {}
        for source, output in sorted(self.free):
            over.setdefault(output, []).append(source)
        lodgers = _Lodgers(self)
        while pending:
            output = pending.pop()
            for source in over.get(output, ()):
                if self._move_in(source, output, lodgers):
                    pending += [t for t in self.block_of[source].starts if t in producer]

    def _move_in(self, source: int, output: int, lodgers: _Lodgers) -> bool:
        block, target = self.block_of[source], self.block_of[output]
        home = target.home
        if block.home is not None or home is None or home.space is not Space.OUTPUT:
            return False
        first = home.offset + target.starts[output]
        capacity = self.size(self.graph.outputs[home.index])
        item = self.graph.type(source).dtype.itemsize
        for start in (first, (capacity - self.size(source)) // item * item):
            moved = Placement(Space.OUTPUT, home.index, start - block.starts[source])
            aligned = all(
                (moved.offset + s) % self._item(t) == 0
                for t, s in block.starts.items()
            )
            inside = self._fits(block.starts, moved, self._contents)
            if aligned and inside and lodgers.undisturbed(block, moved):
                block.home = moved
                lodgers.add(block, moved)
                return True
        return False

    # -- blocks to place

    def span(self, block: TensorBlock) -> tuple[int, int]:
        """Returns the first and last step at which anything of a block is live."""
        lives = [self.lifetimes[tensor] for tensor in block.starts]
        return min(life.first for life in lives), max(life.last for life in lives)

    def between(self, first: TensorBlock, second: TensorBlock) -> Iterator[tuple[int, int]]:
        """Yields the banned distances from one block to another, as bounds."""
        for tensor, start in first.starts.items():
            for other, begin in second.starts.items():
                for low, high in self.apart(tensor, other):
                    if low + 1 < high:
                        yield low + start - begin, high + start - begin

    def arena(self) -> tuple[list[TensorBlock], Arena | LiveBlocks]:
        """Returns the blocks of the workspace, and the constraints on their offsets."""
        blocks = [b for b in self.blocks if b.home is None]
        for block in blocks:
            least = min(block.starts.values())
            block.starts = {t: s - least for t, s in block.starts.items()}
        spans = [self.span(block) for block in blocks]
        sizes = tuple(max(s + self.size(t) for t, s in b.starts.items()) for b in blocks)
        times = tuple(first for first, _ in spans)
        meeting = meetings(
            span for block, span in zip(blocks, spans, strict=True) for _ in block.starts
        )
        if meeting > _PAIRS:
            return blocks, LiveBlocks(sizes, *self._parts(blocks), times)
        bans = [
            Ban(i, j, low, high)
            for i, j in pairs(spans) for low, high in self.between(blocks[i], blocks[j])
        ]
        return blocks, Arena(sizes, tuple(bans), times)

    def _parts(
        self, blocks: Sequence[TensorBlock]
    ) -> tuple[tuple[Part, ...], dict[tuple[int, int], Bans]]:
        """Returns the tensors of blocks, and the bans of pairs that may partly overlap."""
        parts: list[Part] = []
        numbers: dict[int, int] = {}
        for block, whole in enumerate(blocks):
            for tensor, start in whole.starts.items():
                if self.size(tensor):
                    life = self.lifetimes[tensor]
                    numbers[tensor] = len(parts)
                    parts.append(Part(block, start, self.size(tensor), life.first, life.last))
        special = {
            (numbers[source], numbers[output]): tuple(
                (low, high) for low, high in self.apart(source, output) if low + 1 < high
            )
            for source, output in self.free if source in numbers and output in numbers
        }
        return tuple(parts), special


class _Lodgers:
    """The blocks in the caller's buffers for outputs, with the steps at which they are live."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._spans: dict[int, Spans[TensorBlock]] = {}
        for block in layout.blocks:
            if block.home is not None and block.home.space is Space.OUTPUT:
                self.add(block, block.home)

    def add(self, block: TensorBlock, home: Placement) -> None:
        """Adds a block to the buffer ``home``."""
        spans = self._spans.setdefault(home.index, Spans(len(self._layout.order)))
        spans.add(*self._layout.span(block), block)

    def undisturbed(self, block: TensorBlock, home: Placement) -> bool:
        """Returns whether a block could lie at ``home`` beside the other blocks of that buffer."""
        spans = self._spans.get(home.index)
        for other in spans.meeting(*self._layout.span(block)) if spans is not None else ():
            offset = other.home.offset if other.home is not None else 0
            if any(
                low < offset - home.offset < high
                for low, high in self._layout.between(block, other)
            ):
                return False
        return True


def _numbered(tensors: Sequence[int]) -> dict[int, int]:
    """Returns the first position of each tensor."""
    return {tensor: number for number, tensor in reversed([*enumerate(tensors)])}


def _states(graph: Graph, alignment: int) -> tuple[dict[int, int], int]:
    """Returns the offset of each variable in the state, and the size of the state."""
    offsets, size = {}, 0
    for variable in graph.variables:
        offsets[variable] = size
        size += -(-graph.type(variable).nbytes // alignment) * alignment
    return offsets, max(size, int(bool(offsets)))


def _all_of(freedoms: list[Freedom]) -> Freedom:
    """Returns the distances that all of ``freedoms`` allow."""
    before, after = min(f.before for f in freedoms), max(f.after for f in freedoms)
    single = {d for f in freedoms for d in f.exact}
    exact = sorted(d for d in single if all(f.allows(d) for f in freedoms))
    return Freedom(before, after, tuple(d for d in exact if before < d < after))
