"""Which kernels go into an object of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from crtexport.artifact.model import Artifact, Function
from crtexport.backends.modules import Split
from crtexport.kernels.ir import Body, For, If

_WORTH = 300
"""Statements from which on ``auto`` makes another object, some 64 KiB of LLVM IR: then a second
process earns more than it costs to start. Computers differ in processors; what they export must
not."""


def partition(
    artifact: Artifact, split: Split, alone: Callable[[str], bool]
) -> tuple[tuple[Function, ...], ...]:
    """The kernels that ``artifact`` defines in groups, all in their order: first those that stay
    with the entry points, then those of each further object. ``alone`` tells whether a kernel is
    the same code without its calls.

    ``none``: all stay. ``operator``: each gets an object of its own, but kernels that several
    layers share are there once. ``auto``: those that are the same code alone are in as few objects
    as hold about 300 statements each; small models are one object.
    """
    match split:
        case "none":
            return (artifact.own_functions,)
        case "operator":
            return ((), *((function,) for function in artifact.own_functions))
        case "auto":
            if len(_groups(artifact.own_functions)) == 1:
                return (artifact.own_functions,)
            staying = tuple(f for f in artifact.own_functions if not alone(f.symbol))
            leaving = [f for f in artifact.own_functions if f not in staying]
            return (staying, *filter(None, _groups(leaving)))
        case _:
            assert_never(split)


def processes(artifact: Artifact, split: Split) -> int:
    """How many processes the modules of ``artifact`` are worth."""
    return 1 if split == "none" else len(_groups(artifact.own_functions))


def _statements(body: Body) -> int:
    count = len(body)
    for stmt in body:
        if type(stmt) is For:
            count += _statements(stmt.body)
        elif type(stmt) is If:
            count += _statements(stmt.then) + _statements(stmt.other)
    return count


def _groups(functions: Sequence[Function]) -> list[tuple[Function, ...]]:
    groups: list[tuple[Function, ...]] = [()]
    weight = 0
    for function in functions:
        own = _statements(function.kernel.body)
        if groups[-1] and weight + own > _WORTH:
            groups.append(())
            weight = 0
        groups[-1] = (*groups[-1], function)
        weight += own
    return groups
