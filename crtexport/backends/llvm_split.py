"""Which kernels go into an object of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from crtexport.artifact.model import Artifact, Function
from crtexport.backends.modules import Split

_WORTH = 1 << 16
"""Characters of LLVM IR from which on ``auto`` makes another object: then a second process earns
more than it costs to start. Computers differ in processors; what they export must not."""


def partition(
    artifact: Artifact, split: Split, weigh: Callable[[Function], int]
) -> tuple[tuple[Function, ...], ...]:
    """The kernels that ``artifact`` defines in groups, all in their order: first those that stay
    with the entry points, then those of each further object. ``weigh`` tells the size of a
    kernel's text.

    ``none``: all stay. ``operator``: each gets an object of its own, but kernels that several
    layers share are there once. ``auto``: as few objects as hold about 64 KiB of text each.
    """
    match split:
        case "none":
            return (artifact.own_functions,)
        case "operator":
            return ((), *((function,) for function in artifact.own_functions))
        case "auto":
            groups = _groups(artifact.own_functions, weigh)
            return tuple(groups) if len(groups) == 1 else ((), *groups)
        case _:
            assert_never(split)


def _groups(
    functions: Sequence[Function], weigh: Callable[[Function], int]
) -> list[tuple[Function, ...]]:
    groups: list[tuple[Function, ...]] = [()]
    weight = 0
    for function in functions:
        own = weigh(function)
        if groups[-1] and weight + own > _WORTH:
            groups.append(())
            weight = 0
        groups[-1] = (*groups[-1], function)
        weight += own
    return groups
