"""Checks that a network's modules and the nodes that call their functions fit together."""

from __future__ import annotations

import re

from crtexport.ir.graph import Graph, Node
from crtexport.ir.modules import Device, DeviceProgram, ExternalModule, ModuleFunction
from crtexport.ir.ops import EthosU, Foreign
from crtexport.support.errors import CrtExportError


def functions_of(graph: Graph) -> dict[str, ModuleFunction]:
    """Returns the functions of all modules, by symbol. Raises CrtExportError when two define one.
    """
    functions: dict[str, ModuleFunction] = {}
    owners: dict[str, ExternalModule] = {}
    for module in graph.modules:
        if module.name in {other.name for other in graph.modules if other is not module}:
            raise CrtExportError("two modules have this name", location=module.name)
        for function in module.functions:
            where = (f"module {module.name!r}", function.symbol)
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", function.symbol):
                raise CrtExportError("a function's name must be one of C", location=where)
            if function.symbol in owners:
                raise CrtExportError(
                    f"module {owners[function.symbol].name!r} has a function of this name",
                    location=where,
                )
            functions[function.symbol], owners[function.symbol] = function, module
    return functions


def programs_of(graph: Graph) -> dict[Device, DeviceProgram]:
    """Returns the programs of all device images. Raises CrtExportError when a device has two of one
    name, and for functions of images that none of their programs can have."""
    programs: dict[Device, DeviceProgram] = {}
    for module in graph.modules:
        where = f"module {module.name!r}"
        own = {program.device for program in module.programs}
        for program in module.programs:
            if program.device in programs:
                device = program.device
                raise CrtExportError(
                    "another image is for this program of this device",
                    location=(where, device.kind, str(device.id), device.program),
                    hint="give each program of a device a name of its own",
                )
            programs[program.device] = program
        for function in module.functions if module.kind == "device-image" else ():
            if function.device not in own:
                raise CrtExportError(
                    "no image of the module is for this function's device",
                    location=(where, function.symbol),
                )
            if function.const_vars or "\0" in function.entry:
                raise CrtExportError(
                    "a function of an image has neither const_vars nor a NUL in its name",
                    location=(where, function.symbol),
                    hint="make the constant an input of the node, or part of the image",
                )
    return programs


def check_external(graph: Graph) -> None:
    """Raises CrtExportError, naming the node, where a call doesn't fit."""
    functions = functions_of(graph)
    programs_of(graph)
    arities: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Foreign):
            continue
        symbol = node.op.function
        if symbol not in functions:
            known = ", ".join(functions) or "none"
            raise CrtExportError(
                f"no module has a function {symbol!r}", location=str(node),
                hint=f"the functions of this graph's modules are: {known}",
            )
        if isinstance(node.op, EthosU):
            _check_ethos_u(graph, node, node.op)
        else:
            _check_arity(node, symbol, arities)


def _check_ethos_u(graph: Graph, node: Node, op: EthosU) -> None:
    """Checks that each input of the commands is a constant, or has an address of its own in the
    arena."""
    for position, what in ((op.commands, "commands"), (op.constants, "constant data")):
        tensor = graph.optional(node, position)
        if tensor is None and position == op.constants:
            continue
        if tensor is None or graph.constant(tensor) is None:
            raise CrtExportError(f"the {what} must be a constant", location=str(node))
    inputs = [graph.required(node, i) for i in range(op.first, len(node.inputs))]
    if len(op.places) != len(inputs) + len(node.outputs):
        raise CrtExportError(
            f"{len(op.places)} places for {len(inputs)} inputs and {len(node.outputs)} outputs",
            location=str(node),
        )
    if min(op.arena, op.fast) < 0:
        raise CrtExportError("a memory of negative size", location=str(node))
    for side, places in (
        (inputs, op.places[: len(inputs)]), (node.outputs, op.places[len(inputs) :])
    ):
        end = 0
        for place, tensor in sorted(zip(places, side, strict=True)):
            type_, named = graph.type(tensor), repr(graph.tensors[tensor].name)
            where = (str(node), named)
            if graph.tensors[tensor].variable is not None:
                raise CrtExportError("a variable can't lie in the arena", location=where)
            if place < end or place + type_.nbytes > op.arena or place % type_.dtype.itemsize:
                raise CrtExportError(
                    f"the {type_.nbytes} bytes from {place} on overlap others, or aren't aligned"
                    f" in the arena of {op.arena}", location=where,
                )
            end = place + type_.nbytes


def _check_arity(node: Node, symbol: str, arities: dict[str, tuple[int, int]]) -> None:
    if None in node.inputs:
        raise CrtExportError("an external function has no optional inputs", location=str(node))
    if not node.outputs:
        raise CrtExportError("the function has no output", location=str(node))
    own = len(node.inputs), len(node.outputs)
    other = arities.setdefault(symbol, own)
    if own != other:
        raise CrtExportError(
            f"{symbol!r} has {own[0]} inputs and {own[1]} outputs here, but elsewhere "
            f"{other[0]} and {other[1]}",
            location=str(node),
        )
