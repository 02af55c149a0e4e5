"""What a plugin is: it says which nodes of a network it takes, and brings the functions for them.

A plugin is an entry point in the group ``crtexport.accelerators``; docs/accelerators.md has one as
an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.modules import ConstantVariable as Constant
from crtexport.ir.modules import ExternalModule
from crtexport.target import Target

__all__ = ["Accelerator", "Built", "Constant", "Match", "Refusal"]


class Match(Struct, frozen=True):
    """Nodes that one call of a function replaces.

    ``nodes`` are positions in the graph's nodes. The function is given a pointer to each of
    ``inputs`` (ids of the graph's tensors, or constants of the plugin's own), to each of
    ``outputs`` (ids: all that other nodes, or nobody, read of what the nodes make) and, with
    ``scratch``, to so many bytes, 16-byte aligned, that are its own while it runs. ``data`` is for
    the plugin itself.
    """

    nodes: tuple[int, ...]
    inputs: tuple[int | Constant, ...]
    outputs: tuple[int, ...]
    scratch: int = 0
    data: object = None


class Refusal(Struct, frozen=True):
    """Why a plugin doesn't take a node, as a sentence for people."""

    reason: str


class Built(Struct, frozen=True):
    """The function of each match, in their order, and the modules that define them."""

    functions: tuple[str, ...]
    modules: tuple[ExternalModule, ...]


class Accelerator(Protocol):
    """A plugin. It must give the same for the same network, whatever time or folder it is."""

    def match(self, graph: Graph, node: int, target: Target) -> Match | Refusal | None:
        """What it does with a node, and perhaps with others around it. None: a kind of node that it
        never takes. Each node is asked about, in order, unless a match before has it already."""

    def build(self, matches: Sequence[Match], prefix: str) -> Built:
        """The code for all matches of a network; asked only if there are some. Symbols and names of
        files begin with ``prefix``, which is an identifier of C and the network's own."""
