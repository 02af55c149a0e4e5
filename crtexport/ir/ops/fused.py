"""The operator of nodes that do what several did."""

from __future__ import annotations

from msgspec import Struct


class Fused(Struct, frozen=True):
    """Does what the node's ``parts`` do, each of which hands its result to the next one."""
