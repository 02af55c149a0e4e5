"""Variants of a kernel, from which the cost model and tuning choose.

A schedule with parameters (how many pixels or channels are computed together, what is unrolled) has
a function ``candidates`` that returns each variant under a name; a schedule with one variant has
``lower``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from crtexport.lowering.registry import Lowered


class Candidate(Struct, frozen=True):
    """One variant of a node's kernel, built on first use. ``name`` identifies it among the node's
    other candidates. ``rare``: it is seldom the fastest, so only tuning tries it. ``objects``: it
    is usually slow when a C compiler compiles it, and meant for LLVM; ``sources``: the other way
    round. ``larger``: its weights and its scratch take a multiple of those of others. ``fusable``:
    its epilogue, which has results one by one in their order, can compute what a next operator does
    with them."""

    name: str
    build: Callable[[], Lowered]
    rare: bool = False
    objects: bool = False
    sources: bool = False
    larger: bool = False
    fusable: bool = True
    made: list[Lowered] = field(default_factory=list)

    def make(self) -> Lowered:
        """Returns the kernel. Choosing a candidate looks at kernels, one of which is then used:
        each is built once."""
        if not self.made:
            self.made.append(self.build())
        return self.made[0]


def single(name: str, lowered: Lowered | None) -> list[Candidate]:
    """Returns a list of the only variant of a schedule; an empty one where it has none."""
    return [] if lowered is None else [Candidate(name, lambda: lowered)]


def changed(
    candidates: Iterable[Candidate], change: Callable[[Lowered], Lowered]
) -> list[Candidate]:
    """Returns the candidates with their kernels changed by ``change``."""

    return [
        replace(candidate, build=partial(_changed, candidate, change), made=[])
        for candidate in candidates
    ]


def _changed(candidate: Candidate, change: Callable[[Lowered], Lowered]) -> Lowered:
    return change(candidate.make())
