"""Graph and plan to artifact: lowers each step, shares equal kernels and equal constants."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from crtexport.artifact.model import (
    Arg,
    Artifact,
    Call,
    Constant,
    ConstantArg,
    Function,
    InputArg,
    Interface,
    OutputArg,
    RegistryEntry,
    State,
    StateArg,
    WorkspaceArg,
)
from crtexport.artifact.symbols import Namer, interface_fields
from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph, Node
from crtexport.ir.types import ConstantRef
from crtexport.kernels.families import check
from crtexport.kernels.ir import Buffer, Kernel
from crtexport.kernels.registry import (
    Context,
    Derived,
    InputTensor,
    KernelArg,
    OutputTensor,
    Scratch,
)
from crtexport.kernels.step import LowerNode, lower_step
from crtexport.kernels.text import dump
from crtexport.kernels.verify import verify
from crtexport.plan.model import Plan, Space, Step


@dataclass(frozen=True)
class Options:
    """What of the interface the user chose."""

    module: str
    workspace_caller: bool = False
    system_lib: bool = True
    header_comment: tuple[str, ...] = ()


def assemble(graph: Graph, plan: Plan, options: Options, lower: LowerNode) -> Artifact:
    """The artifact of a planned graph; ``lower`` makes the kernel of a node.

    Raises CrtExportError that lists every node that no kernel takes.
    """
    check_supported(graph, plan)
    assembly = _Assembly(graph, plan, f"tvmgen_{options.module}", lower)
    for step in plan.steps:
        assembly.add_step(step)
    prefix = assembly.prefix
    return Artifact(
        module=options.module,
        inputs=_interfaces(graph, plan, graph.inputs, "input"),
        outputs=_interfaces(graph, plan, graph.outputs, "output"),
        constants=tuple(assembly.constants),
        functions=assembly.finished_functions(),
        calls=tuple(assembly.calls),
        # Inputs and outputs of no bytes need an address all the same.
        workspace_size=max(plan.workspace_size, int(plan.io_in_workspace)),
        workspace_align=plan.alignment,
        workspace_caller=options.workspace_caller,
        system_lib=options.system_lib,
        registry=(
            RegistryEntry(f"{prefix}_run", f"{prefix}_run_packed"),
            RegistryEntry(f"{prefix}_get_c_metadata", f"{prefix}_get_c_metadata"),
        ),
        header_comment=options.header_comment,
        state_size=plan.state_size,
        states=_states(graph, plan),
        io_in_workspace=plan.io_in_workspace,
    )


def check_supported(graph: Graph, plan: Plan) -> None:
    """Raises one CrtExportError that names every node that can't be lowered, and why."""
    problems = []
    for step in plan.steps:
        node = graph.nodes[step.node]
        problems += [f"{node}: {broken}" for broken in check(Context(graph, node, step.in_place))]
    if problems:
        raise CrtExportError(
            f"{len(problems)} node{'s' if len(problems) > 1 else ''} can't be exported:\n  "
            + "\n  ".join(problems),
            location=graph.source,
            hint="the table of supported operators in the documentation lists types and limits",
        )


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
    """Where in the workspace an input or output lies, if it does."""
    home = plan.placements[tensor]
    inside = home is not None and home.space is Space.WORKSPACE
    return WorkspaceArg(home.offset) if home is not None and inside else None


def _states(graph: Graph, plan: Plan) -> tuple[State, ...]:
    return tuple(
        State(graph.tensors[tensor].name, graph.type(tensor), home.offset)
        for tensor, home in enumerate(plan.placements)
        if home is not None and home.space is Space.STATE
    )


def describe(graph: Graph, node: Node) -> str:
    """One line that says what a node does: operator, output name, types."""

    def tensor_text(tensor: int | None) -> str:
        return "-" if tensor is None else str(graph.type(tensor))

    inputs = ", ".join(tensor_text(t) for t in node.inputs)
    outputs = ", ".join(f"{graph.tensors[t].name} {graph.type(t)}" for t in node.outputs)
    return f"{node}: {inputs} -> {outputs}"


@dataclass
class _Assembly:
    graph: Graph
    plan: Plan
    prefix: str
    lower: LowerNode
    constants: list[Constant] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._namer = Namer()
        self._functions: dict[str, tuple[str, Kernel]] = {}
        self._docs: dict[str, list[str]] = {}
        self._by_tensor: dict[int, str] = {}
        self._by_content: dict[tuple[str, str, int], str] = {}

    def add_step(self, step: Step) -> None:
        """Lowers a node and appends its call."""
        node = self.graph.nodes[step.node]
        lowered = lower_step(self.graph, step, self.lower)
        line = describe(self.graph, node)
        args = tuple(
            self._bind(step, buffer, arg, line)
            for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
        )
        symbol = self._function(lowered.kernel, line)
        self.calls.append(Call(symbol, args, line))

    def _function(self, kernel: Kernel, line: str) -> str:
        # Told apart by their text: as values, 0.0 and -0.0 are equal.
        text = dump(replace(kernel, doc=()))
        if text not in self._functions:
            verify(kernel)
            symbol = self._namer.name(f"{self.prefix}_{kernel.name}")
            self._functions[text] = (symbol, kernel)
        symbol = self._functions[text][0]
        self._docs.setdefault(symbol, []).append(line)
        return symbol

    def finished_functions(self) -> tuple[Function, ...]:
        """Each distinct kernel once, its doc naming every layer that uses it."""
        return tuple(
            Function(symbol, replace(kernel, doc=tuple(self._docs[symbol])))
            for symbol, kernel in self._functions.values()
        )

    def _bind(self, step: Step, buffer: Buffer, arg: KernelArg, line: str) -> Arg:
        node = self.graph.nodes[step.node]
        match arg:
            case InputTensor(position):
                return self._tensor(self.graph.required(node, position), buffer, line)
            case OutputTensor(position):
                return self._tensor(node.outputs[position], buffer, line)
            case Derived():
                name = f"{self.prefix}_{arg.purpose}"
                return ConstantArg(
                    self._constant(name, buffer, ConstantRef.of(arg.values), line)
                )
            case Scratch(offset):
                if step.scratch is None:
                    raise CrtExportError(f"the plan has no scratch for {node}")
                return WorkspaceArg(step.scratch.offset + offset)

    def _tensor(self, tensor: int, buffer: Buffer, line: str) -> Arg:
        constant = self.graph.constant(tensor)
        if constant is not None:
            if tensor not in self._by_tensor:
                self._by_tensor[tensor] = self._constant(
                    f"{self.prefix}_{buffer.name}", buffer, constant, line
                )
            return ConstantArg(self._by_tensor[tensor])
        home = self.plan.placements[tensor]
        if home is None:
            raise CrtExportError(f"the plan has no place for {self.graph.tensors[tensor].name!r}")
        match home.space:
            case Space.INPUT:
                return InputArg(home.index, home.offset)
            case Space.OUTPUT:
                return OutputArg(home.index, home.offset)
            case Space.WORKSPACE:
                return WorkspaceArg(home.offset)
            case Space.STATE:
                return StateArg(home.offset)
            case Space.CONSTANT:
                return self._tensor(home.index, buffer, line)

    def _constant(self, name: str, buffer: Buffer, data: ConstantRef, line: str) -> str:
        digest = hashlib.sha256()
        for chunk in data.chunks():
            digest.update(chunk)
        key = (digest.hexdigest(), buffer.dtype.value, buffer.size)
        symbol = self._by_content.get(key)
        if symbol is None:
            symbol = self._namer.name(name)
            self._by_content[key] = symbol
            align = max(buffer.align, 16 if data.nbytes >= 64 else 4)
            self.constants.append(
                Constant(symbol, buffer.dtype, buffer.size, data, align, line)
            )
        return symbol
