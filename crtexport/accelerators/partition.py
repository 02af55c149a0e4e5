"""Partitions a graph: calls of accelerator functions replace the nodes that plugins take, and the
rest stays."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.accelerators.packed import adapted
from crtexport.accelerators.plugin import Accelerator, Built, Constant, Match, Refusal
from crtexport.accelerators.registry import find
from crtexport.artifact.symbols import c_identifier
from crtexport.ir.graph import Graph, Node, Tensor, variable_positions
from crtexport.ir.modules import ExternalModule
from crtexport.ir.ops import External
from crtexport.ir.types import DType, TensorType
from crtexport.ir.verify import verify
from crtexport.passes.drop_dead import drop_dead
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

_ALIGN = 16
_MOST_SCRATCH = 1 << 40


class Decision(Struct, frozen=True):
    """The decision of an accelerator about a node: a ``function`` of it computes the node, or it
    refused for a ``reason``."""

    accelerator: str
    layer: str
    function: str = ""
    reason: str = ""


def offload(
    graph: Graph, names: Sequence[str], target: Target, prefix: str
) -> tuple[Graph, tuple[Decision, ...]]:
    """Returns ``graph`` with calls in place of the nodes that the accelerators take, and their
    decisions. Each accelerator gets the nodes that those before it left. Packed functions are
    called through adapters.

    ``prefix`` begins all names in C. Raises CrtExportError, naming the accelerator and the node,
    for a plugin that fails or returns an invalid match.
    """
    decisions: list[Decision] = []
    for name in dict.fromkeys(names):
        plugin = find(name)
        try:
            graph, made = _offload_to(graph, name, plugin, target, prefix)
        except CrtExportError as error:
            raise error.within(f"accelerator {name!r}") from error.__cause__
        decisions += made
    return adapted(graph, prefix), tuple(decisions)


def _offload_to(
    graph: Graph, name: str, plugin: Accelerator, target: Target, prefix: str
) -> tuple[Graph, list[Decision]]:
    matches: list[Match] = []
    refused: dict[int, str] = {}
    matched_nodes: set[int] = set()
    for number, node in enumerate(graph.nodes):
        if number in matched_nodes or isinstance(node.op, External):
            continue
        try:
            answer = _match(plugin, graph, number, target)
            if isinstance(answer, Match):
                _check(graph, answer, number, matched_nodes)
                matches.append(answer)
                matched_nodes.update(answer.nodes)
        except CrtExportError as error:
            raise error.within(str(node)) from error.__cause__
        if isinstance(answer, Refusal):
            refused[number] = answer.reason
    functions: dict[int, str] = {}
    if matches:
        built = _build(plugin, matches, f"{prefix}_{c_identifier(name)}")
        for match, function in zip(matches, built.functions, strict=True):
            functions |= dict.fromkeys(match.nodes, function)
        graph, before = _replaced(graph, matches, built), graph
    else:
        before = graph
    return graph, [
        Decision(name, str(before.nodes[n]), functions.get(n, ""), refused.get(n, ""))
        for n in sorted({*functions, *(r for r in refused if r not in functions)})
    ]


def _match(
    plugin: Accelerator, graph: Graph, number: int, target: Target
) -> Match | Refusal | None:
    try:
        answer = plugin.match(graph, number, target)
    except CrtExportError:
        raise
    except Exception as error:
        raise _failed("match", error) from error
    if answer is not None and not isinstance(answer, Match | Refusal):
        raise CrtExportError(f"the plugin's match returned {type(answer).__name__}, not a Match")
    return answer


def _build(plugin: Accelerator, matches: Sequence[Match], prefix: str) -> Built:
    try:
        built = plugin.build(matches, prefix)
    except CrtExportError:
        raise
    except Exception as error:
        raise _failed("build", error) from error
    if not isinstance(built, Built):
        raise CrtExportError(f"the plugin's build returned {type(built).__name__}, not a Built")
    if len(built.functions) != len(matches):
        raise CrtExportError(
            f"the plugin built {len(built.functions)} functions for {len(matches)} matches"
        )
    promised = {f.symbol for module in built.modules for f in module.functions}
    for symbol in built.functions:
        if not symbol.startswith(prefix):
            raise CrtExportError(f"the function's name doesn't begin with {prefix}",
                                 location=symbol)
        if symbol not in promised:
            raise CrtExportError("none of the plugin's modules has this function", location=symbol)
    return built


def _failed(verb: str, error: Exception) -> CrtExportError:
    return CrtExportError(
        f"the plugin's {verb} failed: {type(error).__name__}: {error}",
        hint="report this to the plugin's author; without the plugin, the model can be exported",
    )


# -- the rules of a match


def _check(graph: Graph, match: Match, node_number: int, matched_nodes: set[int]) -> None:
    """Raises CrtExportError for a match that the graph doesn't allow."""
    numbers = set(match.nodes)
    if node_number not in numbers or len(numbers) != len(match.nodes):
        raise CrtExportError("the match lacks the node that it is for, or has a node twice")
    if not numbers <= set(range(len(graph.nodes))) or numbers & matched_nodes:
        raise CrtExportError("the match has nodes that don't exist, or that another match has")
    if not 0 <= match.scratch <= _MOST_SCRATCH:
        raise CrtExportError(f"the match wants {match.scratch} bytes of scratch")
    nodes = [graph.nodes[number] for number in match.nodes]
    for node in nodes:
        if variable_positions(node):
            raise CrtExportError("a node that keeps a value from run to run can't be taken",
                                 location=str(node))
    computed = {tensor for node in nodes for tensor in node.outputs}
    read_inputs = {t for node in nodes for t in node.inputs if t is not None} - computed
    for tensor in match.inputs:
        if isinstance(tensor, int) and tensor not in read_inputs:
            raise CrtExportError(f"tensor {tensor} is no input of the match's nodes")
        if isinstance(tensor, Constant) and tensor.data.nbytes != tensor.type.nbytes:
            raise CrtExportError("the constant's bytes don't fit its type",
                                 location=tensor.name)
    others = [node for n, node in enumerate(graph.nodes) if n not in numbers]
    read = {t for node in others for t in node.inputs if t is not None} | set(graph.outputs)
    if set(match.outputs) != computed & read and set(match.outputs) != computed:
        raise CrtExportError("the match's outputs aren't those that the rest of the network reads")
    _position(graph, match)


def _position(graph: Graph, match: Match) -> int:
    """Returns the node in whose place the call goes: the last, or the first if others wait for it.
    """
    numbers = set(match.nodes)
    first, last = min(numbers), max(numbers)
    between = [graph.nodes[n] for n in range(first, last) if n not in numbers]
    if not any(t in match.outputs for node in between for t in node.inputs):
        return last
    made = {tensor for node in between for tensor in node.outputs}
    if not made.intersection(match.inputs):
        return first
    raise CrtExportError("other nodes read a result of the match and compute an input of it")


# -- the calls


def _replaced(graph: Graph, matches: Sequence[Match], built: Built) -> Graph:
    tensors = list(graph.tensors)

    def added(tensor: Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    calls: dict[int, Node] = {}
    for match, function in zip(matches, built.functions, strict=True):
        nodes = [graph.nodes[n] for n in sorted(match.nodes)]
        inputs = tuple(
            t if isinstance(t, int) else added(Tensor(t.name, t.type, t.data))
            for t in match.inputs
        )
        size = -(-match.scratch // _ALIGN) * _ALIGN
        scratch = (
            (added(Tensor(f"scratch of {nodes[-1]}", TensorType(DType.INT8, (size,)))),)
            if size else ()
        )
        calls[_position(graph, match)] = Node(
            External(function), inputs, (*match.outputs, *scratch), nodes[-1].name,
            " + ".join(map(str, nodes)),
        )
    gone = {number for match in matches for number in match.nodes}
    kept = tuple(
        calls.get(number, node)
        for number, node in enumerate(graph.nodes) if number in calls or number not in gone
    )
    modules: tuple[ExternalModule, ...] = (*graph.modules, *built.modules)
    result = drop_dead(replace(graph, tensors=tuple(tensors), nodes=kept, modules=modules))
    verify(result)
    return result
