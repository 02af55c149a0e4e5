"""The steps of a plan as calls: lowers each, shares kernels that are alike, and equal constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.contents import Contents
from crtexport.artifact.model import (
    MAX_ADDRESSES,
    Arg,
    Branch,
    Call,
    Constant,
    ConstantArg,
    Function,
    InputArg,
    Loop,
    OutputArg,
    ScalarArg,
    StateArg,
    Statement,
    WorkspaceArg,
    every_call,
    with_calls,
)
from crtexport.artifact.symbols import Namer, c_identifier
from crtexport.errors import CrtExportError
from crtexport.ir.graph import Graph, Node
from crtexport.ir.modules import ModuleFunction
from crtexport.ir.ops import ETHOS_U_ALIGN, EthosU, Foreign, Reshape, While
from crtexport.ir.types import ConstantRef
from crtexport.kernels.identity import identity
from crtexport.kernels.ir import Buffer, Kernel, Scalar
from crtexport.kernels.registry import (
    SCALAR_OF,
    Derived,
    InputTensor,
    KernelArg,
    OutputTensor,
    Scratch,
)
from crtexport.kernels.share import Sharing, Weigh, share
from crtexport.kernels.step import LowerStep
from crtexport.kernels.verify import verify
from crtexport.plan.model import Plan, Space, Step

Proof = Callable[[], None]
"""Raises CrtExportError where something isn't as it must be."""


def describe(graph: Graph, node: Node) -> str:
    """One line that says what a node does: operator, output name, types."""

    def tensor_text(tensor: int | None) -> str:
        return "-" if tensor is None else str(graph.type(tensor))

    inputs = ", ".join(tensor_text(t) for t in node.inputs)
    outputs = ", ".join(f"{graph.tensors[t].name} {graph.type(t)}" for t in node.outputs)
    return f"{node}: {inputs} -> {outputs}"


_WORKSPACE = WorkspaceArg(0)


class Scope(Struct, frozen=True):
    """A graph with its plan, and where that lies: ``workspace`` is where the plan's first pool
    begins in the module's, ``inputs`` and ``outputs`` are the graph's buffers; None: those of the
    caller."""

    graph: Graph
    plan: Plan
    workspace: WorkspaceArg = _WORKSPACE
    inputs: tuple[Arg, ...] | None = None
    outputs: tuple[Arg, ...] | None = None


KEPT = 16 << 20
"""Bytes of constants that are made from others once, and kept in memory; further ones are made
whenever they are read."""


class Stock:
    """What the models of a package have in common: names that are given once, and constants by
    symbol, of which equal ones are there once, aligned for all that read them."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._left = KEPT
        self.namer = Namer(taken)
        self.constants: dict[str, Constant] = {}
        self._contents = Contents()

    def constant(self, name: str, buffer: Buffer, data: ConstantRef, line: str) -> str:
        """The symbol of a constant of these bytes; of a new one that is called like ``name``."""
        if data.made is not None and data.nbytes <= self._left:
            self._left -= data.nbytes
            data = ConstantRef(data.nbytes, data.read())
        kind = buffer.dtype.value, buffer.size
        align = max(buffer.align, 16 if data.nbytes >= 64 else 4)
        symbol = self._contents.symbol(data, kind)
        if symbol is None:
            symbol = self.namer.name(name)
            self._contents.add(data, kind, symbol)
            self.constants[symbol] = Constant(symbol, buffer.dtype, buffer.size, data, align, line)
        elif self.constants[symbol].align < align:
            self.constants[symbol] = replace(self.constants[symbol], align=align)
        return symbol


class Calls:
    """Makes the statements of a model; gathers the kernels and constants that they use.

    ``functions`` are those of others that nodes call; ``prove`` is given the proofs of kernels.
    """

    def __init__(
        self, prefix: str, lower: LowerStep, stock: Stock,
        functions: Mapping[str, ModuleFunction], prove: Callable[[Proof], None],
    ) -> None:
        self.prefix = prefix
        self._functions = functions
        self._prove = prove
        self.kernels: list[Kernel] = []
        self.keys: list[bytes] = []  # what tells the kernels apart
        self._lower = lower
        self._proven: set[bytes] = set()
        self._by_tensor: dict[tuple[int, int], str] = {}
        self._stock = stock
        self._constants: dict[str, None] = {}

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Those that the statements use, in the order of their first use."""
        return tuple(self._stock.constants[symbol] for symbol in self._constants)

    def statements(self, scope: Scope) -> tuple[Statement, ...]:
        """What the steps of a plan do, in their order; :func:`finished` says what calls call."""
        return tuple(s for step in scope.plan.steps for s in self._step(scope, step))

    def _step(self, scope: Scope, step: Step) -> list[Statement]:
        node = scope.graph.nodes[step.node]
        line = describe(scope.graph, node)
        if isinstance(node.op, While):
            return self._loop(scope, step, line)
        if node.graphs:
            condition = self._place(scope, scope.graph.required(node, 0))
            then, other = (
                self.statements(self._inner(scope, step, number, line)) for number in (0, 1)
            )
            return [Branch(condition, then, other, line)]
        if isinstance(node.op, EthosU):
            return [self._commands(scope, step, node, node.op, line)]
        if isinstance(node.op, Foreign):
            given = [self._given(scope, tensor, line) for tensor in node.inputs]
            made = [self._place(scope, tensor) for tensor in node.outputs]
            return [Call(
                node.op.function, (*given, *made, *self._const_vars(node.op.function, line)), line
            )]
        lowered = self._lower(scope.graph, step)
        args = tuple(
            self._bind(scope, step, buffer, arg, line)
            for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
        )
        return [self._call(lowered.kernel, args, line)]

    def _commands(self, scope: Scope, step: Step, node: Node, op: EthosU, line: str) -> Call:
        """Addresses as TensorFlow Lite Micro gives them to Arm's driver (kernels/ethos_u in its
        sources): constant data, arena, fast memory, then inputs and outputs, as far as they go."""
        start = _start(scope, step)
        constants: list[Arg] = []
        read: list[int] = []
        for name, tensor in zip(("commands", "weights"), node.inputs[: op.first], strict=True):
            read.append(0 if tensor is None else scope.graph.type(tensor).nbytes)
            buffer = Buffer(name, Scalar.U8, read[-1], align=ETHOS_U_ALIGN)
            # Where there is no constant data, any address will do.
            constants.append(
                start if tensor is None else self._tensor(scope, tensor, buffer, line)
            )
        tensors = (*node.inputs[op.first :], *node.outputs)
        places = [scope.graph.type(t).nbytes for t in tensors if t is not None]
        args = (
            *constants, start, _advanced(start, op.fast_start),
            *(_advanced(start, at) for at in op.places),
        )
        sizes = (*read, op.arena, op.fast or op.arena, *places)
        most = MAX_ADDRESSES + 1
        return Call(op.function, args[:most], line, sizes[:most])

    # -- graphs that nodes run

    def _inner(self, scope: Scope, step: Step, number: int, line: str) -> Scope:
        """The scope of a graph that the node of ``step`` runs."""
        node, inner = scope.graph.nodes[step.node], step.inner[number]
        results = tuple(self._place(scope, tensor) for tensor in node.outputs)
        given = [self._given(scope, tensor, line) for tensor in node.given]
        if isinstance(node.op, While):
            given[: len(results)] = results
        start = _start(scope, step)
        outputs = tuple(
            results[i] if offset is None else _advanced(start, offset)
            for i, offset in enumerate(inner.outputs)
        )
        workspace = replace(start, offset=start.offset + inner.workspace)
        return Scope(node.graphs[number], inner.plan, workspace, tuple(given), outputs)

    def _given(self, scope: Scope, tensor: int | None, line: str) -> Arg:
        if tensor is None:
            raise CrtExportError("an input of a graph is missing", location=line)
        type_ = scope.graph.type(tensor)
        return self._tensor(scope, tensor, Buffer("given", SCALAR_OF[type_.dtype], type_.elements),
                            line)

    def _const_vars(self, symbol: str, line: str) -> list[Arg]:
        """The constants that a function of others is given."""
        found: list[Arg] = []
        for variable in self._functions[symbol].const_vars:
            buffer = Buffer(
                "const_var", SCALAR_OF[variable.type.dtype], variable.type.elements, align=16
            )
            name = f"{self.prefix}_{c_identifier(variable.name)}"
            found.append(ConstantArg(self._constant(name, buffer, variable.data, line)))
        return found

    def _loop(self, scope: Scope, step: Step, line: str) -> list[Statement]:
        """Copies of what the loop begins with, and the loop, whose body ends with copies of what it
        couldn't make where the next round finds it."""
        node = scope.graph.nodes[step.node]
        condition, body = (self._inner(scope, step, number, line) for number in (0, 1))
        found: list[Statement] = []
        after: list[Statement] = []
        for position, tensor in enumerate(node.outputs):
            target, type_ = self._place(scope, tensor), scope.graph.type(tensor)
            if not type_.nbytes:
                continue
            start = self._given(scope, node.inputs[position], line)
            made = (body.outputs or ())[position]
            found.append(self._copy(scope.graph, tensor, start, target, f"{node}: start"))
            if made != target:
                after.append(self._copy(scope.graph, tensor, made, target, f"{node}: next round"))
        return [*found, Loop(
            self.statements(condition), (condition.outputs or ())[0],
            (*self.statements(body), *after), line,
        )]

    def _copy(self, graph: Graph, tensor: int, source: Arg, target: Arg, line: str) -> Call:
        """A call that copies a value of the type of ``tensor``."""
        value = replace(graph.tensors[tensor], constant=None, variable=None)
        node = Node(Reshape(value.type.shape), (0,), (1,), value.name, line)
        copying = replace(
            graph, tensors=(value, value), nodes=(node,), inputs=(0,), outputs=(1,)
        )
        lowered = self._lower(copying, Step(0))
        args = {InputTensor(0): source, OutputTensor(0): target}
        bound = tuple(args[a] for a in lowered.args if isinstance(a, InputTensor | OutputTensor))
        return self._call(lowered.kernel, bound, line)

    # -- what calls use

    def _call(self, kernel: Kernel, args: tuple[Arg, ...], line: str) -> Call:
        """A call of a kernel by its number; functions are known when all kernels are."""
        key = identity(kernel)
        if key not in self._proven:
            self._prove(partial(verify, kernel))
            self._proven.add(key)
        self.kernels.append(kernel)
        self.keys.append(key)
        return Call(str(len(self.kernels) - 1), args, line)

    def _bind(self, scope: Scope, step: Step, buffer: Buffer, arg: KernelArg, line: str) -> Arg:
        node = scope.graph.nodes[step.node]
        match arg:
            case InputTensor(position):
                return self._tensor(scope, scope.graph.required(node, position), buffer, line)
            case OutputTensor(position):
                return self._tensor(scope, node.outputs[position], buffer, line)
            case Derived():
                name = f"{self.prefix}_{arg.purpose}"
                return ConstantArg(self._constant(name, buffer, arg.data, line))
            case Scratch(offset):
                if step.scratch is None:
                    raise CrtExportError(f"the plan has no scratch for {node}")
                return _advanced(_start(scope, step), offset)

    def _tensor(self, scope: Scope, tensor: int, buffer: Buffer, line: str) -> Arg:
        constant = scope.graph.constant(tensor)
        if constant is None:
            home = scope.plan.placements[tensor]
            if home is not None and home.space is Space.CONSTANT:
                return self._tensor(scope, home.index, buffer, line)
            return self._place(scope, tensor)
        key = (id(scope.graph), tensor)
        if key not in self._by_tensor:
            self._by_tensor[key] = self._constant(
                f"{self.prefix}_{buffer.name}", buffer, constant, line
            )
        return ConstantArg(self._by_tensor[key])

    def _place(self, scope: Scope, tensor: int) -> Arg:
        """Where a tensor that is no constant lies."""
        graph = scope.graph
        if scope.inputs is not None and graph.tensors[tensor].variable is not None:
            return scope.inputs[graph.inputs.index(tensor)]
        home = scope.plan.placements[tensor]
        if home is None:
            raise CrtExportError(f"the plan has no place for {graph.tensors[tensor].name!r}")
        match home.space:
            case Space.INPUT:
                if scope.inputs is not None:
                    return _advanced(scope.inputs[home.index], home.offset)
                return InputArg(home.index, home.offset)
            case Space.OUTPUT:
                if scope.outputs is not None:
                    return _advanced(scope.outputs[home.index], home.offset)
                return OutputArg(home.index, home.offset)
            case Space.WORKSPACE:
                if home.index:
                    return WorkspaceArg(home.offset, home.index)
                return _advanced(scope.workspace, home.offset)
            case Space.STATE:
                return StateArg(home.offset)
            case Space.CONSTANT:
                raise CrtExportError(f"{graph.tensors[tensor].name!r} lies in a constant")

    def _constant(self, name: str, buffer: Buffer, data: ConstantRef, line: str) -> str:
        symbol = self._stock.constant(name, buffer, data, line)
        self._constants.setdefault(symbol)
        return symbol


def finished(
    models: Sequence[tuple[Calls, tuple[Statement, ...]]], namer: Namer, weigh: Weigh | None,
    prove: Callable[[Proof], None],
) -> list[tuple[tuple[Function, ...], tuple[Statement, ...]]]:
    """For each model the functions that it calls, and its statements with their symbols and the
    numbers that they are given.

    Each distinct kernel of all models is there once, called as the first that uses it; its doc
    names every layer that does. ``weigh``: what decides which are made one; ``prove`` is given the
    proofs of kernels that are new.
    """
    shared = share(
        [kernel for calls, _ in models for kernel in calls.kernels], weigh,
        [key for calls, _ in models for key in calls.keys],
    )
    proven = {key for calls, _ in models for key in calls.keys}
    functions: dict[bytes, tuple[str, Kernel]] = {}
    docs: dict[str, list[str]] = {}

    def named(call: Call, calls: Calls, sharings: Sequence[Sharing]) -> Call:
        if not call.symbol.isdigit():
            return call  # of a function that isn't ours
        number = int(call.symbol)
        sharing = sharings[number]
        params = sharing.kernel.params
        own = sharing.kernel is calls.kernels[number]
        key = calls.keys[number] if own else identity(sharing.kernel)
        if key not in functions:
            if key not in proven:
                numbers = zip((param.name for param in params), sharing.values, strict=True)
                prove(partial(verify, sharing.kernel, dict(numbers)))
            symbol = namer.name(f"{calls.prefix}_{sharing.kernel.name}")
            functions[key] = (symbol, sharing.kernel)
        symbol = functions[key][0]
        docs.setdefault(symbol, []).append(call.comment)
        given = (
            ScalarArg(value, param.type)
            for value, param in zip(sharing.values, params, strict=True)
        )
        return replace(call, symbol=symbol, args=(*call.args, *given))

    results = []
    for calls, statements in models:
        own, shared = shared[: len(calls.kernels)], shared[len(calls.kernels) :]
        results.append(with_calls(statements, partial(named, calls=calls, sharings=own)))
    made = [
        Function(symbol, replace(kernel, doc=tuple(docs[symbol])))
        for symbol, kernel in functions.values()
    ]
    return [
        (tuple(f for f in made if f.symbol in called), statements)
        for statements in results
        for called in ({call.symbol for call in every_call(statements)},)
    ]


def _start(scope: Scope, step: Step) -> WorkspaceArg:
    """Where the scratch of a step begins in the module's workspace."""
    if step.scratch is None:
        return scope.workspace
    if step.scratch.pool:
        return WorkspaceArg(step.scratch.offset, step.scratch.pool)
    return replace(scope.workspace, offset=scope.workspace.offset + step.scratch.offset)


def _advanced(arg: Arg, offset: int) -> Arg:
    """``offset`` bytes further."""
    match arg:
        case InputArg() | OutputArg() | WorkspaceArg() | StateArg() | ConstantArg():
            return replace(arg, offset=arg.offset + offset)
        case ScalarArg():
            raise CrtExportError("a number has no bytes")
        case _:
            assert_never(arg)
