"""Assembles the artifact of a planned graph: the module's interface, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from crtexport.artifact.calls import LINE, WORD, Calls, Proof, Scope, Stock, finished
from crtexport.artifact.common import check_names, entry_symbols, with_common
from crtexport.artifact.model import (
    Artifact,
    Constant,
    DeviceImage,
    ExternalFunction,
    Feed,
    Function,
    Interface,
    Pool,
    RegistryEntry,
    State,
    Statement,
    WorkspaceArg,
    every_call,
)
from crtexport.artifact.symbols import interface_fields
from crtexport.ir.external import functions_of, programs_of
from crtexport.ir.graph import Graph
from crtexport.ir.modules import Device
from crtexport.ir.ops import EthosU, Foreign
from crtexport.ir.types import ConstantRef
from crtexport.kir.analysis.kernel_merging import Weigh
from crtexport.kir.language import Scalar
from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.plan.model import Plan, Space
from crtexport.support.errors import CrtExportError


class ModuleOptions(Struct, frozen=True):
    """The user's options for the interface. ``alignment``: bytes at a multiple of which constants
    begin that aren't small."""

    module: str
    workspace_caller: bool = False
    system_lib: bool = True
    header_comment: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()
    workspace_shared: bool = False
    alignment: int = LINE


class Planned(Struct, frozen=True):
    """A planned graph; ``weigh`` decides which of its kernels are merged, and without it only equal
    ones are."""

    lowered: LoweredGraph
    plan: Plan
    options: ModuleOptions
    weigh: Weigh | None = None

    @property
    def graph(self) -> Graph:
        return self.lowered.graph


def assemble_package(
    models: Sequence[Planned], prove: Callable[[Proof], None] = lambda proof: proof()
) -> tuple[Artifact, ...]:
    """Returns the artifacts of the models of one package, in their order.

    Equal kernels and constants are emitted once, with the first model that uses them; so is the
    function registry of all models, if there is one. All models have the target of the first.
    ``prove`` receives the proofs that kernels are sound, and may run them later. Raises
    CrtExportError that lists every node without a kernel, or for two models of one name.
    """
    check_names([model.options.module for model in models])
    stock = Stock(
        (name for m in models for name in entry_symbols(m.options.module)),
        models[0].options.alignment,
    )
    started = []
    for model in models:
        check_supported(model.lowered, model.plan)
        calls = Calls(
            f"tvmgen_{model.options.module}", stock, functions_of(model.graph), prove
        )
        started.append((calls, calls.statements(Scope(model.lowered, model.plan))))
    done = finished(started, stock.namer, models[0].weigh, prove)
    return with_common([
        _artifact(model, calls.constants, *code)
        for model, (calls, _), code in zip(models, started, done, strict=True)
    ], one_workspace=models[0].options.workspace_shared)


def _artifact(
    model: Planned, constants: tuple[Constant, ...], functions: tuple[Function, ...],
    statements: tuple[Statement, ...],
) -> Artifact:
    graph, plan, options = model.graph, model.plan, model.options
    externals, devices = _externals(graph)
    return Artifact(
        module=options.module,
        inputs=_interfaces(graph, plan, graph.inputs, "input"),
        outputs=_interfaces(graph, plan, graph.outputs, "output"),
        constants=constants,
        functions=functions,
        calls=statements,
        # Empty tensors need an address as well.
        workspace_size=max(
            plan.workspace_size, int(plan.io_in_workspace or _in_workspace(statements)),
            *(s.counter.offset + 2 * WORD for s in statements if isinstance(s, Feed)),
        ),
        workspace_align=plan.alignment,
        workspace_caller=options.workspace_caller,
        system_lib=options.system_lib,
        registry=_registry(options.module, plan, graph),
        header_comment=options.header_comment,
        state_size=plan.state_size,
        states=_states(graph, plan),
        io_in_workspace=plan.io_in_workspace,
        externals=externals,
        devices=devices,
        spilled=tuple(map(Pool, options.memories[1:], plan.spilled)),
        images=_images(graph, f"tvmgen_{options.module}", devices),
    )


def _in_workspace(statements: tuple[Statement, ...]) -> bool:
    """Returns whether a call takes an address in the first pool of the workspace."""
    return any(
        isinstance(arg, WorkspaceArg) and arg.pool == 0
        for call in every_call(statements) for arg in call.args
    )


def _registry(module: str, plan: Plan, graph: Graph) -> tuple[RegistryEntry, ...]:
    prefix = f"tvmgen_{module}"
    entries = [
        RegistryEntry(f"{prefix}_run", f"{prefix}_run_packed"),
        RegistryEntry(f"{prefix}_get_c_metadata", f"{prefix}_get_c_metadata"),
    ]
    if plan.state_size:
        entries.append(RegistryEntry(f"{prefix}_reset", f"{prefix}_reset_packed"))
    entries += (
        RegistryEntry(function.symbol, function.symbol, external=True)
        for function in functions_of(graph).values() if function.signature == "packed"
    )
    return tuple(entries)


def _externals(graph: Graph) -> tuple[tuple[ExternalFunction, ...], tuple[Device, ...]]:
    """Returns the external functions that nodes call, and the devices that they run on, in the
    order of the graph's modules."""
    functions = functions_of(graph)
    arities = {
        node.op.function: (len(node.inputs), len(node.outputs))
        for node in graph.nodes if isinstance(node.op, Foreign)
    }
    entries = {
        function.symbol: function.entry or function.symbol
        for module in graph.modules if module.kind == "device-image"
        for function in module.functions
    }
    commands = {node.op.function for node in graph.nodes if isinstance(node.op, EthosU)}
    arities |= dict.fromkeys(commands, (0, 0))
    called = [function for symbol, function in functions.items() if symbol in arities]
    devices = tuple(dict.fromkeys(f.device for f in called if f.device is not None))
    return tuple(
        ExternalFunction(
            function.symbol, *arities[function.symbol], constants=len(function.const_vars),
            device=None if function.device is None else devices.index(function.device),
            entry=entries.get(function.symbol),
            commands=function.symbol in commands,
        )
        for function in called
    ), devices


def _images(
    graph: Graph, prefix: str, devices: tuple[Device, ...]
) -> tuple[DeviceImage, ...]:
    """Returns the device programs of ``devices``; equal stored bytes are shared."""
    programs = programs_of(graph)
    if not programs:
        return ()
    from crtexport.devices.image import Stored, stored_image  # noqa: PLC0415

    known: dict[tuple[Path, str, int], Stored] = {}
    images = []
    for number, device in enumerate(devices):
        program = programs.get(device)
        if program is None:
            continue
        key = program.file, program.compression, program.align
        if key not in known:
            known[key] = stored_image(*key)
        stored, symbol = known[key], f"{prefix}_device_image_{list(known).index(key)}"
        constant = Constant(
            symbol, Scalar.U8, stored.data.nbytes, stored.data, max(program.align, 16),
            f"The program {device.program!r} of {device.kind!r} {device.id}, from {key[0].name}",
        )
        source = ConstantRef(stored.header.original_size, path=program.file)
        images.append(DeviceImage(number, constant, stored.offset, stored.header, source))
    return tuple(images)


def check_supported(lowered: LoweredGraph, plan: Plan) -> None:
    """Raises one CrtExportError that names every node that can't be lowered, and why."""
    problems = _problems(lowered, plan)
    if problems:
        raise CrtExportError(
            f"{len(problems)} node{'s' if len(problems) > 1 else ''} can't be exported:\n  "
            + "\n  ".join(problems),
            location=lowered.graph.source,
            hint="the table of supported operators in the documentation lists types and limits",
        )


def _problems(lowered: LoweredGraph, plan: Plan) -> list[str]:
    found = []
    for step in plan.steps:
        node = lowered.nodes[step.node]
        found += [f"{node.node}: {problem}" for problem in node.problems]
        for inner, nested in zip(step.inner, node.graphs, strict=True):
            found += [f"{node.node} → {problem}" for problem in _problems(nested, inner.plan)]
    return found


def _interfaces(
    graph: Graph, plan: Plan, tensors: tuple[int, ...], kind: str
) -> tuple[Interface, ...]:
    names = [graph.tensors[t].name for t in tensors]
    fields = interface_fields(names, kind)
    return tuple(
        Interface(name, c_field, graph.type(t), _inside(plan, t))
        for name, c_field, t in zip(names, fields, tensors, strict=True)
    )


def _inside(plan: Plan, tensor: int) -> WorkspaceArg | None:
    """Returns the address of an input or output in the workspace; None if it lies elsewhere."""
    home = plan.placements[tensor]
    inside = home is not None and home.space is Space.WORKSPACE
    return WorkspaceArg(home.offset, home.index) if home is not None and inside else None


def _states(graph: Graph, plan: Plan) -> tuple[State, ...]:
    return tuple(
        State(graph.tensors[tensor].name, graph.type(tensor), home.offset)
        for tensor, home in enumerate(plan.placements)
        if home is not None and home.space is Space.STATE
    )
