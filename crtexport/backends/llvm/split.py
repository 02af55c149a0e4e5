"""Distribution of kernels over objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from crtexport.artifact.model import Artifact, Function
from crtexport.backends.modules import Split
from crtexport.kir.assembly.assemble import features_of
from crtexport.kir.language import Body, Comment, For
from crtexport.kir.walk import bodies
from crtexport.support.target import Target

_WORTH = 300
"""Statements from which on ``auto`` starts another object, some 64 KiB of LLVM IR: then a second
process gains more time than its start costs. The number doesn't depend on the computer, so that
exports are the same everywhere."""


def partition(
    artifact: Artifact, split: Split, compiles_apart: Callable[[str], bool], target: Target
) -> tuple[tuple[Function, ...], ...]:
    """Returns the kernels that ``artifact`` defines in groups, all in their order: first those in
    the object of the entry points, then those of each further object. ``compiles_apart`` tells
    whether a kernel compiles to the same code apart from its calls.

    ``none``: one object. ``operator``: each kernel has an object of its own; kernels that several
    layers share exist once. ``auto``: kernels that compile to the same code apart are in as few
    objects as hold about 300 statements each, those of loops aside whose instructions are given;
    small models are one object.
    """
    assembled = features_of(target) is not None
    match split:
        case "none":
            return (artifact.own_functions,)
        case "operator":
            return ((), *((function,) for function in artifact.own_functions))
        case "auto":
            if len(_groups(artifact.own_functions, assembled=assembled)) == 1:
                return (artifact.own_functions,)
            staying = tuple(f for f in artifact.own_functions if not compiles_apart(f.symbol))
            leaving = [f for f in artifact.own_functions if f not in staying]
            return (staying, *filter(None, _groups(leaving, assembled=assembled)))
        case _:
            assert_never(split)


def processes(artifact: Artifact, split: Split, target: Target) -> int:
    """Returns the number of processes that the modules of ``artifact`` are worth."""
    if split == "none":
        return 1
    return len(_groups(artifact.own_functions, assembled=features_of(target) is not None))


def _statements(body: Body, *, assembled: bool) -> int:
    """Returns the number of statements. ``assembled``: loops that are marked so have instructions
    already, and count as one."""
    return sum(
        (not isinstance(stmt, Comment)) + (
            0 if assembled and isinstance(stmt, For) and stmt.assembled
            else sum(_statements(inner, assembled=assembled) for inner in bodies(stmt))
        )
        for stmt in body
    )


def _groups(functions: Sequence[Function], *, assembled: bool) -> list[tuple[Function, ...]]:
    groups: list[tuple[Function, ...]] = [()]
    weight = 0
    for function in functions:
        own = _statements(function.kernel.body, assembled=assembled)
        if groups[-1] and weight + own > _WORTH:
            groups.append(())
            weight = 0
        groups[-1] = (*groups[-1], function)
        weight += own
    return groups
