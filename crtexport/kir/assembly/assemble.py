"""A loop of a kernel as a function of instructions."""

from __future__ import annotations

import functools
import itertools

from msgspec import Struct

from crtexport.kir.assembly.allocate import Allocation
from crtexport.kir.assembly.encode import encode
from crtexport.kir.assembly.instructions import Argument, UnsupportedError
from crtexport.kir.assembly.select import select
from crtexport.kir.assembly.spellings import Features
from crtexport.kir.assembly.text import text
from crtexport.kir.language import For, Kernel
from crtexport.support.target import Target


class Assembled(Struct, frozen=True):
    """``lines``: the function's instructions, ``code``: their bytes; ``arguments``: what it is
    called with, in its parameters' order; ``cycles``: of a call; ``dsp``: whether it takes a
    processor with the DSP extension."""

    lines: tuple[str, ...]
    code: bytes
    arguments: tuple[Argument, ...]
    cycles: int
    dsp: bool


def features_of(target: Target) -> Features | None:
    """Returns what a target's instructions are; None where there are none of these here."""
    triple = target.triple
    if not triple.startswith(("thumbv7m", "thumbv7em", "thumbv8m.main", "thumbv8.1m.main")):
        return None
    return Features(dsp="+dsp" in target.features)


def assembled(loop: For, kernel: Kernel, target: Target) -> Assembled | None:
    """Returns the instructions of a loop in ``kernel``; None where that has to be left to a
    compiler."""
    features = features_of(target)
    if features is None:
        return None
    try:
        return assemble(loop, kernel, features)
    except UnsupportedError:
        return None


def assemble(loop: For, kernel: Kernel, features: Features) -> Assembled:
    """Returns the instructions of a loop in ``kernel``. Raises UnsupportedError where there are
    none for something in it."""
    return _assembled(loop, _apart(kernel), features)


def _apart(kernel: Kernel) -> frozenset[frozenset[str]]:
    """Pairs of buffers that never overlap."""
    names = [buffer.name for buffer in kernel.buffers]
    return frozenset(
        frozenset(pair) for pair in itertools.combinations(names, 2)
        if not set(pair) <= set(kernel.overlapping)
    ) | frozenset(frozenset(("", name)) for name in names)


@functools.lru_cache(256)
def _assembled(
    loop: For, apart: frozenset[frozenset[str]], features: Features
) -> Assembled:
    selected = select(loop, features)
    placed = Allocation(selected.body, features, apart).result()
    made = text(selected.body, placed, selected.arguments)
    return Assembled(
        made.lines, encode(made.lines), made.arguments, round(placed.cycles) + made.around,
        features.dsp,
    )
