"""The plugin interface: a plugin takes nodes of a network, and brings the functions for them.

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
from crtexport.support.target import Target

__all__ = ["Accelerator", "Built", "Constant", "Match", "Refusal"]


class Match(Struct, frozen=True):
    """Nodes that one call of a function replaces.

    ``nodes`` are positions in the graph's nodes. The function gets a pointer to each of ``inputs``
    (ids of the graph's tensors, or constants of the plugin's own), to each of ``outputs`` (ids: all
    results of the nodes that other nodes read, or that nothing reads) and, with ``scratch``, to as
    many bytes, 16-byte aligned, that are its own while it runs. ``data`` is for the plugin itself.
    """

    nodes: tuple[int, ...]
    inputs: tuple[int | Constant, ...]
    outputs: tuple[int, ...]
    scratch: int = 0
    data: object = None


class Refusal(Struct, frozen=True):
    """The reason why a plugin doesn't take a node, as a sentence for people."""

    reason: str


class Built(Struct, frozen=True):
    """The function of each match, in their order, and the modules that define them."""

    functions: tuple[str, ...]
    modules: tuple[ExternalModule, ...]


class Accelerator(Protocol):
    """A plugin. It must return the same for the same network, at any time and in any folder."""

    def match(self, graph: Graph, node: int, target: Target) -> Match | Refusal | None:
        """Returns a match of a node, and perhaps of others around it, or a refusal. None: a kind of
        node that it never takes. Called for each node, in order, unless a match before has it
        already."""

    def build(self, matches: Sequence[Match], prefix: str) -> Built:
        """Returns the code for all matches of a network; called only if there are some. Symbols and
        names of files begin with ``prefix``, which is an identifier of C and unique to the network.
        """
