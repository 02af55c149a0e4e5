"""The costs of floats on a processor that has no instructions for them."""

from __future__ import annotations

from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.pipeline.result import Prepared
from crtexport.schedules.common.target_features import computes_floats
from crtexport.support.target import Target

_INSTRUCTIONS = {"thumbv6m": 190, "thumbv8m.base": 190, "thumb": 80, "riscv": 170}
"""Instructions of a multiply-accumulate in the functions of libgcc, by the beginning of the triple:
of fully connected layers that QEMU counted 190 to 193, 73 to 91 and 162 to 186."""


def soft_floats(model: Prepared, target: Target) -> str | None:
    """Returns, as a sentence, how many multiply-accumulates of floats ``target`` computes in
    software, what they cost and what helps; None where it has instructions for floats, and where
    there are no such products."""
    if computes_floats(target):
        return None
    count = sum(
        macs(lowered.graph, node) for lowered in model.lowered.nested()
        for node in lowered.graph.nodes if _of_floats(lowered.graph, node)
    )
    if not count:
        return None
    found = (each for start, each in _INSTRUCTIONS.items() if target.triple.startswith(start))
    each = next(found, None)
    cost = "many instructions" if each is None else f"about {each} instructions"
    return (
        f"{count:,} multiply-accumulates are of floats, which {target.cpu} computes in software:"
        f" {cost} each; an int8 model (`crtexport quantize`) takes a few, and so does a board with"
        " floating point"
    )


def _of_floats(graph: Graph, node: Node) -> bool:
    """Returns whether a node multiplies floats: its first input has them."""
    return bool(node.inputs) and graph.type(graph.required(node, 0)).dtype.is_float
