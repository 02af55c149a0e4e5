"""The operator of nodes that do what several did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fused:
    """Does what the node's ``parts`` do, each of which hands its result to the next one."""
