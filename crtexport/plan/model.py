"""The plan: what the planner decides and the checker proves."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Space(enum.Enum):
    """Where a tensor lives."""

    INPUT = "input"  # the caller's buffer of graph input ``index``
    OUTPUT = "output"  # the caller's buffer of graph output ``index``
    WORKSPACE = "workspace"  # byte ``offset`` of the workspace
    CONSTANT = "constant"  # the constant tensor ``index``


@dataclass(frozen=True)
class Placement:
    """The home of one tensor: ``index`` for INPUT/OUTPUT/CONSTANT, byte ``offset`` within it."""

    space: Space
    index: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """One node that runs. ``in_place`` lists (output position, input position) that share bytes."""

    node: int
    in_place: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Plan:
    """``placements[tensor]`` for every tensor that a step touches; None for unused tensors.

    Nodes that are free (a reshape whose output is a view of its input) have no step.
    """

    steps: tuple[Step, ...]
    placements: tuple[Placement | None, ...]
    workspace_size: int
    alignment: int
