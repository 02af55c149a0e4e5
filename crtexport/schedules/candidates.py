"""The forms that a kernel can have, from which the cost model and tuning choose.

A schedule with a choice (how many pixels or channels go together, what is unrolled) has a function
``candidates`` that returns each form under a name; one without has ``lower``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, field

from crtexport.kernels.registry import Lowered


class Candidate(Struct, frozen=True):
    """One form of a node's kernel, made when somebody looks.

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
    """The only form that a schedule has; none if it has no form at all."""
    return [] if lowered is None else [Candidate(name, lambda: lowered)]


def changed(
    candidates: Iterable[Candidate], change: Callable[[Lowered], Lowered]
) -> list[Candidate]:
    """The candidates with what ``change`` makes of their kernels."""

    return [
        Candidate(form.name, partial(_changed, form, change), form.rare, form.objects)
        for form in candidates
    ]


def _changed(form: Candidate, change: Callable[[Lowered], Lowered]) -> Lowered:
    return change(form.make())
