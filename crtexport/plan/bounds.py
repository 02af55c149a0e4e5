"""What no placement can go below: the bytes that are needed at one moment."""

from __future__ import annotations

from collections.abc import Iterable

from crtexport.plan.layout import Layout
from crtexport.plan.model import Peak


def peak(layout: Layout) -> Peak:
    """The greatest lower bound of all moments, the first of equals."""
    end = len(layout.order)
    best = Peak(0, None, 0)
    live = 0
    for moment in range(-1, end + 1):
        tensors = [
            t for t, life in layout.lifetimes.items()
            if layout.block_of[t].home is None and life.first <= moment <= life.last
        ]
        whole = _covered(layout, tensors)
        live = max(live, whole)
        needed = whole - _shared(layout, set(tensors))
        if needed > best.lower_bound:
            node = layout.order[moment] if 0 <= moment < end else None
            best = Peak(needed, node, 0)
    return Peak(best.lower_bound, best.node, live)


def _covered(layout: Layout, tensors: Iterable[int]) -> int:
    """Bytes that tensors take where only those of one block lie over each other."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for tensor in tensors:
        block = layout.block_of[tensor]
        start = block.starts[tensor]
        ranges.setdefault(id(block), []).append((start, start + layout.size(tensor)))
    total = 0
    for spans in ranges.values():
        reached = min(start for start, _ in spans)
        for start, stop in sorted(spans):
            total += max(0, stop - max(start, reached))
            reached = max(reached, stop)
    return total


def _shared(layout: Layout, tensors: set[int]) -> int:
    """Most bytes that pairs of ``tensors`` could have in common."""
    sources: dict[int, int] = {}
    outputs: dict[int, int] = {}
    total = 0
    for source, output in layout.free:
        if not {source, output} <= tensors:
            continue
        sources[source], outputs[output] = layout.size(source), layout.size(output)
        total += _overlap(layout, source, output)
    return min(total, sum(sources.values()), sum(outputs.values()))


def _overlap(layout: Layout, source: int, output: int) -> int:
    """Most bytes that an output may share with an input."""
    return layout.free[source, output].shared(layout.size(source), layout.size(output))
