"""The text of a graph: stable, one line per tensor that isn't computed and per node, names escaped.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import Quantization
from crtexport.support.errors import printable

_SCALES_SHOWN = 4


def dump(graph: Graph) -> str:
    """Returns ``graph`` as text for people and golden files; equal graphs give equal text.

    Neither the places of constants' bytes nor the graph's file are part of it.
    """
    return "\n".join(_lines(graph, f"graph {graph.name!r} numerics={graph.numerics.value}")) + "\n"


def _lines(graph: Graph, head: str) -> list[str]:
    lines = [head]
    lines += [f"  input {_defined(graph, tensor)}" for tensor in graph.inputs]
    lines += [
        f"  constant {_defined(graph, index)} {tensor.constant.nbytes} bytes"
        f"{f', stored in {tensor.packed_bits} bits each' if tensor.packed_bits else ''}"
        for index, tensor in enumerate(graph.tensors)
        if tensor.constant is not None
    ]
    lines += [
        f"  variable {_defined(graph, index)}{_initial(tensor)}"
        for index, tensor in enumerate(graph.tensors)
        if tensor.variable is not None
    ]
    for node in graph.nodes:
        lines.append(f"  {_node(graph, node)}")
        lines += [f"    {_node(graph, part)}" for part in node.parts]
        for number, nested in enumerate(node.graphs):
            lines += [f"    {line}" for line in _lines(nested, f"graph {number} {nested.name!r}")]
    lines.append(f"  output {', '.join(f'%{tensor}' for tensor in graph.outputs)}")
    return lines


def _initial(tensor: Tensor) -> str:
    given = tensor.variable is not None and tensor.variable.initial is not None
    return " given" if given else " zero"


def _node(graph: Graph, node: Node) -> str:
    results = ", ".join(_defined(graph, tensor) for tensor in node.outputs)
    operands = ", ".join("none" if t is None else f"%{t}" for t in node.inputs)
    origin = f"  # {printable(node.origin)}" if node.origin else ""
    # Importers name a node by its first output, which needs no saying twice.
    known = {graph.tensors[tensor].name for tensor in node.outputs}
    named = f" {node.name!r}" if node.name and node.name not in known else ""
    results += " = " if results else ""
    return f"{results}{node.operator}({operands}){_attributes(node.op)}{named}{origin}"


def _attributes(op: object) -> str:
    """Returns all attributes by name, nested ones in braces; nothing for an operator without
    any."""
    if not isinstance(op, Struct):
        return ""
    fields = op.__struct_fields__
    values = ", ".join(f"{name}={_value(getattr(op, name))}" for name in fields)
    return f" {{{values}}}" if fields else ""


def _value(value: object) -> str:
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, Struct):
        return _attributes(value).lstrip()
    return repr(value)


def _defined(graph: Graph, index: int) -> str:
    tensor: Tensor = graph.tensors[index]
    quant = f" {_quantization(tensor.type.quant)}" if tensor.type.quant else ""
    return f"%{index} {tensor.name!r}: {tensor.type}{quant}"


def _quantization(quant: Quantization) -> str:
    pairs = list(zip(quant.scale, quant.zero_point, strict=False))
    shown = ", ".join(f"{scale!r}@{zero}" for scale, zero in pairs[:_SCALES_SHOWN])
    more = f", … {len(pairs)}" if len(pairs) > _SCALES_SHOWN else ""
    along = "" if quant.axis is None else f" axis={quant.axis}"
    return f"q({shown}{more}{along})"
