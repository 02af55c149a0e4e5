"""CMSIS-NN, Arm's library of kernels for Cortex-M, as an accelerator; users install the library.

It takes the operators that the library computes bit for bit as the kernels here do: int8 with two
roundings.
"""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.accelerators.cmsis_nn.layers import TAKERS
from crtexport.accelerators.cmsis_nn.source import LIBRARY, write_source
from crtexport.accelerators.plugin import Built, Match, Refusal
from crtexport.ir.graph import Graph
from crtexport.ir.modules import ExternalModule, ModuleFunction, SourceText
from crtexport.ir.numerics import Numerics
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

__all__ = ["CmsisNN"]


class CmsisNN:
    """Convolutions, fully connected layers, pooling and softmax of int8 networks."""

    def match(self, graph: Graph, node: int, target: Target) -> Match | Refusal | None:
        take = TAKERS.get(type(graph.nodes[node].op))
        if take is None:
            return None
        if graph.numerics in (Numerics.LITERT, Numerics.ORT):
            return Refusal("results are rounded once here, but twice in CMSIS-NN")
        context = Context(graph, graph.nodes[node])
        broken = check(context)
        if broken:
            return Refusal(broken[0])
        return take(context, node, target)

    def build(self, matches: Sequence[Match], prefix: str) -> Built:
        names, text = write_source(matches, prefix)
        module = ExternalModule(
            prefix, "c-source", (SourceText(f"{prefix}.c", text),),
            tuple(ModuleFunction(name) for name in dict.fromkeys(names)), library=LIBRARY,
        )
        if len(text) > 1 << 24:
            raise CrtExportError("the calls of CMSIS-NN would be too large a source file")
        return Built(names, (module,))
