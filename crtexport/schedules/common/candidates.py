"""Variants of a kernel, from which the cost model and tuning choose.

A schedule with a choice (how many pixels or channels go together, what is unrolled) has a function
``candidates`` that returns each variant under a name; one without has ``lower``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, field

from crtexport.lowering.registry import Lowered


class Candidate(Struct, frozen=True):
    """One variant of a node's kernel, made on first use.

    ``name`` tells it from the node's other candidates. ``rare``: seldom the best one, so that only
    tuning tries it. ``objects``: what compilers of C make of it is usually slow.
    """

    name: str
    build: Callable[[], Lowered]
    rare: bool = False
    objects: bool = False
    made: list[Lowered] = field(default_factory=list)

    def make(self) -> Lowered:
        """The kernel. What chooses looks at kernels, one of which is then taken: it is built
        once."""
        if not self.made:
            self.made.append(self.build())
        return self.made[0]


def single(name: str, lowered: Lowered | None) -> list[Candidate]:
    """Returns the only variant that a schedule has; none if it has none."""
    return [] if lowered is None else [Candidate(name, lambda: lowered)]


def changed(
    candidates: Iterable[Candidate], change: Callable[[Lowered], Lowered]
) -> list[Candidate]:
    """The candidates with what ``change`` makes of their kernels."""

    return [
        Candidate(
            candidate.name, partial(_changed, candidate, change), candidate.rare, candidate.objects
        )
        for candidate in candidates
    ]


def _changed(candidate: Candidate, change: Callable[[Lowered], Lowered]) -> Lowered:
    return change(candidate.make())
