"""The forms that a kernel can have, from which the cost model and tuning choose.

A schedule with a choice (how many pixels or channels go together, what is unrolled) has a function
``candidates`` that returns each form under a name; one without has ``lower``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from crtexport.kernels.registry import Lowered


class Candidate(Struct, frozen=True):
    """One form of a node's kernel, made when somebody looks.

    ``name`` tells it from the node's other candidates. ``rare``: seldom the best one, so that only
    tuning tries it. ``objects``: what compilers of C make of it is usually slow.
    """

    name: str
    make: Callable[[], Lowered]
    rare: bool = False
    objects: bool = False

    def __post_init__(self) -> None:
        # What chooses looks at kernels, one of which is then taken.
        force_setattr(self, "make", functools.cache(self.make))


def single(name: str, lowered: Lowered | None) -> list[Candidate]:
    """The only form that a schedule has; none if it has no form at all."""
    return [] if lowered is None else [Candidate(name, lambda: lowered)]


def changed(
    candidates: Iterable[Candidate], change: Callable[[Lowered], Lowered]
) -> list[Candidate]:
    """The candidates with what ``change`` makes of their kernels."""

    def made(make: Callable[[], Lowered]) -> Callable[[], Lowered]:
        return lambda: change(make())

    return [replace(candidate, make=made(candidate.make)) for candidate in candidates]
