"""Calls of packed functions, each through an adapter with the C interface that makes DLTensors of
its pointers.

``TVMBackendPackedCFunc`` is TVM's ``include/tvm/runtime/c_backend_api.h``; the tensors are where
the plan has them, on ``kDLCPU``, without strides.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact import abi
from crtexport.artifact.symbols import c_identifier
from crtexport.backends.c.literals import comment_text
from crtexport.ir.external import functions_of
from crtexport.ir.graph import Graph, Node
from crtexport.ir.modules import ExternalModule, ModuleFunction, SourceText
from crtexport.ir.ops import External
from crtexport.ir.types import TensorType
from crtexport.support import resources
from crtexport.support.errors import CrtExportError

_TEMPLATE = "accelerators/packed.c.j2"


class _Adapter(Struct, frozen=True):
    """The function and the types of its arguments; equal ones need one adapter."""

    function: ModuleFunction
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


def adapted(graph: Graph, prefix: str) -> Graph:
    """Returns ``graph`` with calls of adapters in place of those of packed functions, and a module
    with the adapters; all names begin with ``prefix``.

    Raises CrtExportError, naming the node, for more arguments than TVM's runtime passes.
    """
    functions = functions_of(graph)
    symbols: dict[_Adapter, str] = {}
    layers: dict[str, list[str]] = {}
    nodes = []
    for node in graph.nodes:
        function = functions.get(node.op.function) if isinstance(node.op, External) else None
        if function is not None and function.signature == "packed":
            adapter = _adapter(graph, node, function)
            symbol = symbols.setdefault(
                adapter, f"{prefix}_call_{c_identifier(function.symbol)}_{len(symbols)}"
            )
            layers.setdefault(symbol, []).append(comment_text(str(node)))
            nodes.append(replace(node, op=External(symbol)))
        else:
            nodes.append(node)
    if not symbols:
        return graph
    name = f"{prefix}_packed_calls"
    text = resources.environment().get_template(_TEMPLATE).render(
        adapters=[
            _described(adapter, symbol, layers[symbol]) for adapter, symbol in symbols.items()
        ],
    )
    module = ExternalModule(
        name, "c-source", (SourceText(f"{name}.c", text),),
        tuple(
            replace(adapter.function, symbol=symbol, signature="c")
            for adapter, symbol in symbols.items()
        ),
    )
    return replace(graph, nodes=tuple(nodes), modules=(*graph.modules, module))


def _adapter(graph: Graph, node: Node, function: ModuleFunction) -> _Adapter:
    inputs = [graph.type(graph.required(node, i)) for i in range(len(node.inputs))]
    outputs = [graph.type(tensor) for tensor in node.outputs]
    count = len(inputs) + len(outputs) + len(function.const_vars)
    if count > abi.MAX_PACKED_ARGS:
        raise CrtExportError(
            f"{function.symbol!r} would be given {count} arguments; TVM's C runtime passes at most "
            f"{abi.MAX_PACKED_ARGS} to a packed function",
            location=str(node), hint="give it fewer arguments, or the C signature",
        )
    return _Adapter(
        function, *(tuple(replace(type_, quant=None) for type_ in side)
                    for side in (inputs, outputs)),
    )


def _described(adapter: _Adapter, symbol: str, layers: Sequence[str]) -> dict[str, object]:
    function = adapter.function
    sides = (
        ("input", "const void *", adapter.inputs),
        ("output", "void *", adapter.outputs),
        ("constant", "const void *", tuple(c.type for c in function.const_vars)),
    )
    tensors = [
        {
            "name": f"{side}_{number}", "pointer": pointer, "shape": type_.shape,
            "constant": pointer.startswith("const"), "type": abi.dl_data_type(type_.dtype),
        }
        for side, pointer, types in sides for number, type_ in enumerate(types)
    ]
    return {
        "symbol": symbol, "function": function.symbol, "tensors": tensors, "layers": layers,
        "context": function.device is not None,
    }
