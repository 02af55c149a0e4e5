"""A loop of a kernel as a function of instructions, by what a target's processor has."""

from __future__ import annotations

import functools
import itertools

from msgspec import Struct
from msgspec.structs import replace

from crtexport.kir.assembly.armv7em.allocate import Allocation, Placed
from crtexport.kir.assembly.armv7em.instructions import UnsupportedError
from crtexport.kir.assembly.armv7em.issue import rules_of
from crtexport.kir.assembly.armv7em.renumber import renumbered
from crtexport.kir.assembly.armv7em.select import Selected, select
from crtexport.kir.assembly.armv7em.spellings import Features
from crtexport.kir.assembly.armv7em.sum_counters import counted_in_sums
from crtexport.kir.assembly.armv7em.text import Text, text
from crtexport.kir.assembly.encode import encode
from crtexport.kir.assembly.frame import Given
from crtexport.kir.assembly.mve.function import function_of
from crtexport.kir.assembly.mve.machine_loop import definitions_in, machine_loop
from crtexport.kir.language import For, Kernel
from crtexport.kir.walk import marked
from crtexport.support.target import Target

_VECTORS = (("MVE.FP", "+mve.fp"), ("MVE", "+mve"))
"""Extensions of vectors, and the features of a target with them."""


class Assembled(Struct, frozen=True):
    """``lines``: the function's instructions, ``code``: their bytes; ``arguments``: what it is
    called with, in its parameters' order; ``extension``: of the architecture, that it takes: "",
    "DSP", "MVE", or "MVE.FP" with floats."""

    lines: tuple[str, ...]
    code: bytes
    arguments: tuple[Given, ...]
    extension: str


def features_of(target: Target) -> Features | None:
    """Returns what a target's instructions are; None where there are none of these here."""
    triple = target.triple
    if not triple.startswith(("thumbv7m", "thumbv7em", "thumbv8m.main", "thumbv8.1m.main")):
        return None
    return Features(dsp="+dsp" in target.features, rules=rules_of(target.cpu))


def assembled(loop: For, kernel: Kernel, target: Target) -> Assembled | None:
    """Returns the instructions of a loop in ``kernel``; None where that has to be left to a
    compiler."""
    features = features_of(target)
    if features is None:
        return None
    extension = next((name for name, feature in _VECTORS if feature in target.features), "")
    if extension:
        found = machine_loop(loop, definitions_in(kernel), kernel.overlapping)
        if found is not None:
            function = function_of(found)
            return Assembled(function.lines, function.code, function.arguments, extension)
    try:
        made = assemble(loop, kernel, features)
    except UnsupportedError:
        return None
    # One macro of a C file says whether its compiler takes all its functions.
    return replace(made, extension=extension) if extension else made


def assembles(kernel: Kernel, target: Target) -> bool:
    """Returns whether no loop of a kernel that asks to be instructions is left to a compiler on a
    target where others are instructions."""
    if features_of(target) is None:
        return True
    return all(assembled(loop, kernel, target) is not None for loop in marked(kernel.body))


def assemble(loop: For, kernel: Kernel, features: Features) -> Assembled:
    """Returns the instructions of a loop in ``kernel``, of Armv7-M and its DSP extension. Raises
    UnsupportedError where there are none for something in it."""
    made = _assembled(loop, _apart(kernel), features)
    if isinstance(made, str):
        raise UnsupportedError(made)
    return made


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
) -> Assembled | str:
    """Returns the instructions, or what there are none for."""
    try:
        selected = select(loop, features)
        allocation = Allocation(selected.body, features, apart)
        placed, passed = counted_in_sums(
            selected.body, allocation.result(), allocation.live, selected.arguments
        )
        made, code = written(replace(selected, arguments=passed), placed)
    except UnsupportedError as error:
        return str(error)
    arguments = tuple(Given(one.register.name, one.buffer, one.index) for one in made.arguments)
    return Assembled(made.lines, code, arguments, "DSP" if features.dsp else "")


def written(selected: Selected, placed: Placed) -> tuple[Text, bytes]:
    """Returns a function and its bytes with the registers in which it is the shorter: those that it
    was placed in, or others, whose gain is counted without what copies arguments."""
    several = [
        text(selected.body, one, selected.arguments)
        for one in (renumbered(placed, selected.arguments), placed)
    ]
    return min(((made, encode(made.lines)) for made in several), key=lambda one: len(one[1]))
