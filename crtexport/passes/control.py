"""Simplifies control flow whose conditions or arguments are known while exporting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import If, Reshape, While
from crtexport.passes.uses import producers, readers


def bind_arguments(graph: Graph) -> Graph:
    """Moves constant arguments into inner graphs, values that a loop doesn't change out of the
    loop, and drops unread arguments.

    Requires: nothing. Ensures: no inner graph receives a constant or has an input that none of its
    node's graphs read, except initial values of a loop; each output of an If is read.
    """
    uses = readers(graph)
    tensors = list(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.op, While):
            unchanged, bound = _without_unchanged(node, tensors)
            nodes += unchanged
        elif isinstance(node.op, If):
            bound = _without_unread(node, uses)
        else:
            bound = node
        nodes.append(_bound(bound, tensors) if bound.graphs else bound)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def choose_branches(graph: Graph) -> Graph:
    """Replaces an If with a constant condition by the branch that it takes, and a While whose
    condition is false at the start by copies.

    Requires: nothing. Ensures: no condition of an If is constant.
    """
    tensors = list(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.op, If):
            known = _truth(graph, graph.required(node, 0))
            if known is not None:
                nodes += _inlined(node, node.graphs[0 if known else 1], tensors)
                continue
        elif isinstance(node.op, While):
            condition = node.graphs[0]
            if _truth(condition, condition.outputs[0]) is False:
                nodes += [
                    _copy(node, graph.required(node, i), output, tensors)
                    for i, output in enumerate(node.outputs)
                ]
                continue
        nodes.append(node)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _copy(node: Node, source: int, output: int, tensors: Sequence[Tensor]) -> Node:
    op = Reshape(tensors[output].type.shape)
    return Node(op, (source,), (output,), tensors[output].name, node.origin)


# ---- what graphs are given


def _bound(node: Node, tensors: Sequence[Tensor]) -> Node:
    """Returns ``node`` without arguments that its graphs don't need."""
    first = len(node.inputs) - len(node.given)
    carried = len(node.outputs) if isinstance(node.op, While) else 0
    graphs = list(node.graphs)
    read = [{t for inner in g.nodes for t in inner.inputs} | set(g.outputs) for g in graphs]
    kept = list(range(carried))
    for position in range(carried, len(node.given)):
        tensor = node.given[position]
        constant = tensors[tensor].constant if tensor is not None else None
        if constant is not None:
            graphs = [
                _with_tensor(
                    g, g.inputs[position],
                    replace(g.tensors[g.inputs[position]], constant=constant),
                )
                for g in graphs
            ]
        elif any(g.inputs[position] in known for g, known in zip(graphs, read, strict=True)):
            kept.append(position)
    return replace(
        node, inputs=(*node.inputs[:first], *(node.given[p] for p in kept)),
        graphs=tuple(replace(g, inputs=tuple(g.inputs[p] for p in kept)) for g in graphs),
    )


def _with_tensor(graph: Graph, number: int, tensor: Tensor) -> Graph:
    tensors = (*graph.tensors[:number], tensor, *graph.tensors[number + 1 :])
    return replace(graph, tensors=tensors)


def _without_unread(node: Node, uses: dict[int, int]) -> Node:
    """Returns an If without the outputs that nothing reads."""
    kept = [i for i, output in enumerate(node.outputs) if uses[output]]
    return replace(
        node, outputs=tuple(node.outputs[i] for i in kept),
        graphs=tuple(
            replace(g, outputs=tuple(g.outputs[i] for i in kept)) for g in node.graphs
        ),
    )


def _without_unchanged(node: Node, tensors: Sequence[Tensor]) -> tuple[list[Node], Node]:
    """Returns copies of the values that a loop doesn't change, and the loop that only reads them.
    """
    body = node.graphs[1]
    computed_by = producers(body)
    fixed = [
        i for i, (given, made) in enumerate(zip(body.inputs, body.outputs, strict=False))
        if given == _origin(body, computed_by, made) and body.type(given) == body.type(made)
    ]
    changed = [i for i in range(len(node.outputs)) if i not in fixed]
    order = [*changed, *fixed, *range(len(node.outputs), len(node.inputs))]
    copies = []
    for i in fixed:
        source = node.inputs[i]
        if source is not None:
            copies.append(_copy(node, source, node.outputs[i], tensors))
    graphs = [replace(g, inputs=tuple(g.inputs[i] for i in order)) for g in node.graphs]
    graphs[1] = replace(graphs[1], outputs=tuple(body.outputs[i] for i in changed))
    return copies, replace(
        node, inputs=tuple(node.inputs[i] for i in order),
        outputs=tuple(node.outputs[i] for i in changed), graphs=tuple(graphs),
    )


def _origin(graph: Graph, computed_by: dict[int, Node], tensor: int) -> int:
    """Returns the tensor that ``tensor`` is a copy of, possibly with another shape."""
    while tensor in computed_by and isinstance(computed_by[tensor].op, Reshape):
        tensor = graph.required(computed_by[tensor], 0)
    return tensor


# ---- conditions


def _truth(graph: Graph, tensor: int) -> bool | None:
    """Returns the value of a condition; None if it isn't constant."""
    constant = graph.constant(_origin(graph, producers(graph), tensor))
    return None if constant is None else any(constant.read())


def _inlined(node: Node, chosen: Graph, tensors: list[Tensor]) -> Iterable[Node]:
    """Returns the nodes of ``chosen``, with tensors of the outer graph."""
    number: dict[int, int] = {}
    copied: list[Node] = []
    after: list[Node] = []
    for inner, outer in zip(chosen.inputs, node.given, strict=True):
        same = outer is not None and tensors[outer].type == chosen.type(inner)
        if outer is not None and (same or chosen.tensors[inner].variable is not None):
            number[inner] = outer
        elif outer is not None:  # the same bytes with another quantization or shape
            number[inner] = len(tensors)
            tensors.append(chosen.tensors[inner])
            copied.append(_copy(node, outer, number[inner], tensors))
    computed = {t for inner_node in chosen.nodes for t in inner_node.outputs}
    for inner, outer in zip(chosen.outputs, node.outputs, strict=True):
        if inner in computed and inner not in number and (
            chosen.type(inner) == tensors[outer].type
        ):
            number[inner] = outer
    for inner, tensor in enumerate(chosen.tensors):
        if inner not in number:
            number[inner] = len(tensors)
            tensors.append(tensor)
    after = [
        _copy(node, number[inner], outer, tensors)
        for inner, outer in zip(chosen.outputs, node.outputs, strict=True)
        if number[inner] != outer
    ]
    middle = [
        replace(
            inner_node,
            inputs=tuple(None if t is None else number[t] for t in inner_node.inputs),
            outputs=tuple(number[t] for t in inner_node.outputs),
        )
        for inner_node in chosen.nodes
    ]
    return [*copied, *middle, *after]
