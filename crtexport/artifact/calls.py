"""Turns the steps of a plan into calls; equal or similar kernels and equal constants are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.constant_dedup import KnownConstants
from crtexport.artifact.model import (
    MAX_ADDRESSES,
    Arg,
    BranchStatement,
    Constant,
    ConstantArg,
    Function,
    FunctionCall,
    InputArg,
    LoopStatement,
    OutputArg,
    ScalarArg,
    StateArg,
    Statement,
    StatementOf,
    WorkspaceArg,
    every_call,
    with_calls,
)
from crtexport.artifact.row_calls import Places, RowCall, row_statements
from crtexport.artifact.symbols import Namer, c_identifier
from crtexport.ir.graph import Graph, Node
from crtexport.ir.modules import ModuleFunction
from crtexport.ir.ops import ETHOS_U_ALIGN, EthosU, Foreign, While
from crtexport.ir.types import ConstantRef
from crtexport.kir.analysis.kernel_merging import Weigh, merge
from crtexport.kir.fingerprint import fingerprint
from crtexport.kir.language import Buffer, Kernel, Scalar
from crtexport.kir.verifier import verify
from crtexport.lowering.lowered_graph import LoweredGraph, LoweredNode
from crtexport.lowering.registry import (
    SCALAR_OF,
    Derived,
    InputTensor,
    KernelArg,
    Lowered,
    OutputTensor,
    Scratch,
)
from crtexport.lowering.self_copies import without_self_copies
from crtexport.plan.model import Plan, RowPlan, Space, Step
from crtexport.support.errors import CrtExportError

Proof = Callable[[], None]
"""Raises CrtExportError if a check fails."""


def describe(graph: Graph, node: Node) -> str:
    """Returns one line about a node: operator, inputs and outputs with their types."""

    def tensor_text(tensor: int | None) -> str:
        return "-" if tensor is None else str(graph.type(tensor))

    inputs = ", ".join(tensor_text(t) for t in node.inputs)
    outputs = ", ".join(f"{graph.tensors[t].name} {graph.type(t)}" for t in node.outputs)
    return f"{node}: {inputs} -> {outputs}"


_WORKSPACE = WorkspaceArg(0)
WORD = 4
"""Bytes of each loop counter and condition that a model keeps in its workspace."""


class UnnamedCall(Struct, frozen=True):
    """A call of a kernel that has no symbol yet. ``key`` identifies the kernel; ``runs`` is how
    often loops of known lengths make the call."""

    kernel: Kernel
    key: bytes
    args: tuple[Arg, ...]
    comment: str
    runs: int = 1


Unnamed: TypeAlias = StatementOf[FunctionCall | UnnamedCall]
"""A statement before kernels have symbols; functions of external modules already have theirs."""


class Scope(Struct, frozen=True):
    """A graph with its plan and its buffers.

    ``workspace`` is the offset of the plan's first pool in the module's; ``inputs`` and ``outputs``
    are the graph's buffers, None for those of the caller. ``path`` of an inner graph has, from the
    outermost on, the number of each node that runs it, and which of that node's graphs it is.
    """

    lowered: LoweredGraph
    plan: Plan
    workspace: WorkspaceArg = _WORKSPACE
    inputs: tuple[Arg, ...] | None = None
    outputs: tuple[Arg, ...] | None = None
    path: tuple[int, ...] = ()

    @property
    def graph(self) -> Graph:
        return self.lowered.graph


LINE = 16
"""Bytes of a vector, and of a line of many caches of flash."""
SMALL = 64
"""Constants of fewer bytes begin at any word."""
KEPT = 16 << 20
"""The most bytes of constants that are derived from others once and kept in memory; the rest are
derived whenever they are read."""


class Stock:
    """Symbols and constants that the models of a package share: each symbol is used once, and equal
    constants are emitted once, aligned for all their readers."""

    def __init__(self, used_symbols: Iterable[str] = (), alignment: int = LINE) -> None:
        self._left, self._alignment = KEPT, alignment
        self.namer = Namer(used_symbols)
        self.constants: dict[str, Constant] = {}
        self._contents = KnownConstants()

    def constant(
        self, name: str, buffer: Buffer, data: ConstantRef, line: str, row: int = 0, note: str = ""
    ) -> str:
        """Returns the symbol of a constant with these bytes; that of a new one is made from
        ``name``."""
        words = data.made is not None and not buffer.dtype.is_float
        if data.made is not None and data.nbytes <= self._left:
            self._left -= data.nbytes
            data = ConstantRef(data.nbytes, data.read())
        kind = buffer.dtype.value, buffer.size
        align = max(buffer.align, self._alignment if data.nbytes >= SMALL else 4)
        symbol = self._contents.symbol(data, kind)
        if symbol is None:
            symbol = self.namer.name(name)
            self._contents.add(data, kind, symbol)
            self.constants[symbol] = Constant(
                symbol, buffer.dtype, buffer.size, data, align, line, note, row, words
            )
        elif self.constants[symbol].align < align:
            self.constants[symbol] = replace(self.constants[symbol], align=align)
        return symbol


class Calls:
    """Makes the statements of a model, and collects the kernels and constants that they use.

    ``functions`` are the external functions that nodes call; ``prove`` receives the proofs of
    kernels.
    """

    def __init__(
        self, prefix: str, stock: Stock, functions: Mapping[str, ModuleFunction],
        prove: Callable[[Proof], None],
    ) -> None:
        self.prefix = prefix
        self._functions = functions
        self._prove = prove
        self.unnamed: list[UnnamedCall] = []
        self._proven: set[bytes] = set()
        self._by_tensor: dict[tuple[tuple[int, ...], int], str] = {}
        self._stock = stock
        self._constants: dict[str, None] = {}

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Returns the constants that the statements use, in the order of their first use."""
        return tuple(self._stock.constants[symbol] for symbol in self._constants)

    def statements(self, scope: Scope) -> tuple[Unnamed, ...]:
        """Returns the statements of a plan's steps, in their order; :func:`finished` names the
        kernels that they call."""
        return tuple(s for step in scope.plan.steps for s in self._step(scope, step))

    def _step(self, scope: Scope, step: Step) -> list[Unnamed]:
        node = scope.graph.nodes[step.node]
        line = describe(scope.graph, node)
        if isinstance(node.op, While):
            return self._loop(scope, step, line)
        if node.graphs:
            condition = self._place(scope, scope.graph.required(node, 0))
            then, other = (
                self.statements(self._inner(scope, step, number, line)) for number in (0, 1)
            )
            return [BranchStatement(condition, then, other, line)]
        if isinstance(node.op, EthosU):
            return [self._commands(scope, step, node, node.op, line)]
        if isinstance(node.op, Foreign):
            given = [self._given(scope, tensor, line) for tensor in node.inputs]
            made = [self._place(scope, tensor) for tensor in node.outputs]
            return [FunctionCall(
                node.op.function, (*given, *made, *self._const_vars(node.op.function, line)), line
            )]
        if step.rows is not None:
            return self._rows(scope, step, step.rows, line)
        lowered = scope.lowered.nodes[step.node].running(
            backward=step.backward, in_place=step.in_place
        )
        lowered = without_self_copies(lowered, (
            (output, position) for output, position in step.in_place
            if self._place(scope, node.outputs[output])
            == self._place(scope, scope.graph.required(node, position))
        ))
        args = tuple(
            self._bind(scope, step, buffer, arg, line)
            for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True)
        )
        return [self._call(lowered.kernel, args, line)]

    def _rows(self, scope: Scope, step: Step, plan: RowPlan, line: str) -> list[Unnamed]:
        """Returns the calls of a cascade, in loops."""
        node, rows = scope.graph.nodes[step.node], scope.lowered.nodes[step.node].rows
        if rows is None:
            raise CrtExportError(f"the plan has rows for {node}")
        bands = replace(scope, lowered=rows.lowered, path=(*scope.path, step.node, 0))
        comments = [describe(bands.graph, each.node) for each in rows.lowered.nodes]
        keys: dict[int, bytes] = {}
        start = _start(scope, step)

        def bound(node: LoweredNode, buffer: Buffer, arg: KernelArg, scratch: int) -> Arg:
            text = describe(bands.graph, node.node)
            match arg:
                case Scratch(offset):
                    return _advanced(start, scratch + offset)
                case InputTensor(position):
                    tensor = bands.graph.required(node.node, position)
                    return self._tensor(bands, tensor, buffer, text)
                case Derived():
                    return self._derived(buffer, arg, text)
                case OutputTensor():
                    raise CrtExportError(f"the output of {node} is no row")

        def call_of(row: RowCall) -> FunctionCall | UnnamedCall:
            kernel = row.lowered.kernel
            key = keys.get(row.band) or keys.setdefault(row.band, fingerprint(kernel))
            return self._add(
                UnnamedCall(kernel, key, row.args, comments[row.band], row.runs)
            )

        counter = WorkspaceArg(-(-scope.plan.workspace_size // WORD) * WORD)
        statement = row_statements(scope.graph, node, rows, plan, Places(
            lambda tensor, offset: _advanced(self._place(scope, tensor), offset),
            lambda offset: _advanced(start, offset), bound,
        ), counter, line)
        return list(with_calls((statement,), call_of))

    def _commands(
        self, scope: Scope, step: Step, node: Node, op: EthosU, line: str
    ) -> FunctionCall:
        """Returns the call of an Ethos-U with the addresses that TensorFlow Lite Micro passes to
        Arm's driver (kernels/ethos_u in its sources): constant data, arena, fast memory, then
        inputs and outputs, as many as there are."""
        start = _start(scope, step)
        constants: list[Arg] = []
        read: list[int] = []
        for name, tensor in zip(("commands", "weights"), node.inputs[: op.first], strict=True):
            read.append(0 if tensor is None else scope.graph.type(tensor).nbytes)
            buffer = Buffer(name, Scalar.U8, read[-1], align=ETHOS_U_ALIGN)
            # The driver needs an address even without constant data; any will do.
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
        return FunctionCall(op.function, args[:most], line, sizes[:most])

    # -- graphs that nodes run

    def _inner(self, scope: Scope, step: Step, number: int, line: str) -> Scope:
        """Returns the scope of an inner graph of the node of ``step``."""
        node, inner = scope.graph.nodes[step.node], step.inner[number]
        results = tuple(self._place(scope, tensor) for tensor in node.outputs)
        own = results if isinstance(node.op, While) else ()
        given = [*own, *(self._given(scope, t, line) for t in node.given[len(own) :])]
        start = _start(scope, step)
        outputs = tuple(
            results[i] if offset is None else _advanced(start, offset)
            for i, offset in enumerate(inner.outputs)
        )
        workspace = replace(start, offset=start.offset + inner.workspace)
        return Scope(
            scope.lowered.nodes[step.node].graphs[number], inner.plan, workspace, tuple(given),
            outputs, (*scope.path, step.node, number),
        )

    def _given(self, scope: Scope, tensor: int | None, line: str) -> Arg:
        if tensor is None:
            raise CrtExportError("an input of a graph is missing", location=line)
        type_ = scope.graph.type(tensor)
        return self._tensor(scope, tensor, Buffer("given", SCALAR_OF[type_.dtype], type_.elements),
                            line)

    def _const_vars(self, symbol: str, line: str) -> list[Arg]:
        """Returns the constants that are passed to an external function."""
        found: list[Arg] = []
        for variable in self._functions[symbol].const_vars:
            buffer = Buffer(
                "const_var", SCALAR_OF[variable.type.dtype], variable.type.elements, align=16
            )
            name = f"{self.prefix}_{c_identifier(variable.name)}"
            found.append(ConstantArg(self._constant(name, buffer, variable.data, line)))
        return found

    def _loop(self, scope: Scope, step: Step, line: str) -> list[Unnamed]:
        """Returns copies of the loop's initial values, and the loop; its body ends with copies of
        the values that it couldn't write where the next iteration reads them."""
        lowered = scope.lowered.nodes[step.node]
        node = lowered.node
        condition, body = (self._inner(scope, step, number, line) for number in (0, 1))
        found: list[Unnamed] = []
        after: list[Unnamed] = []
        for position, (tensor, copy) in enumerate(zip(node.outputs, lowered.copies, strict=True)):
            target = self._place(scope, tensor)
            if copy is None:
                continue
            made = (body.outputs or ())[position]
            if node.inputs[position] is not None:
                start = self._given(scope, node.inputs[position], line)
                found.append(self._copy(copy.lowered, start, target, f"{node}: start"))
            if made != target:
                after.append(self._copy(copy.lowered, made, target, f"{node}: next round"))
        return [*found, LoopStatement(
            self.statements(condition), (condition.outputs or ())[0],
            (*self.statements(body), *after), line,
        )]

    def _copy(self, lowered: Lowered, source: Arg, target: Arg, line: str) -> UnnamedCall:
        args = {InputTensor(0): source, OutputTensor(0): target}
        bound = tuple(args[a] for a in lowered.args if isinstance(a, InputTensor | OutputTensor))
        return self._call(lowered.kernel, bound, line)

    # -- what calls use

    def _call(self, kernel: Kernel, args: tuple[Arg, ...], line: str) -> UnnamedCall:
        return self._add(UnnamedCall(kernel, fingerprint(kernel), args, line))

    def _add(self, call: UnnamedCall) -> UnnamedCall:
        if call.key not in self._proven:
            self._prove(partial(verify, call.kernel))
            self._proven.add(call.key)
        self.unnamed.append(call)
        return call

    def _bind(self, scope: Scope, step: Step, buffer: Buffer, arg: KernelArg, line: str) -> Arg:
        node = scope.graph.nodes[step.node]
        match arg:
            case InputTensor(position):
                return self._tensor(scope, scope.graph.required(node, position), buffer, line)
            case OutputTensor(position):
                return self._tensor(scope, node.outputs[position], buffer, line)
            case Derived():
                return self._derived(buffer, arg, line)
            case Scratch(offset):
                if step.scratch is None:
                    raise CrtExportError(f"the plan has no scratch for {node}")
                return _advanced(_start(scope, step), offset)

    def _derived(self, buffer: Buffer, arg: Derived, line: str) -> ConstantArg:
        name = f"{self.prefix}_{arg.purpose}"
        return ConstantArg(self._constant(name, buffer, arg.data, line, arg.row, arg.note))

    def _tensor(self, scope: Scope, tensor: int, buffer: Buffer, line: str) -> Arg:
        constant = scope.graph.constant(tensor)
        if constant is None:
            home = scope.plan.placements[tensor]
            if home is not None and home.space is Space.CONSTANT:
                return self._tensor(scope, home.index, buffer, line)
            return self._place(scope, tensor)
        key = scope.path, tensor
        if key not in self._by_tensor:
            shape = scope.graph.type(tensor).shape
            row = buffer.size // shape[0] if len(shape) > 1 and shape[0] > 1 else 0
            self._by_tensor[key] = self._constant(
                f"{self.prefix}_{buffer.name}", buffer, constant, line, row
            )
        return ConstantArg(self._by_tensor[key])

    def _place(self, scope: Scope, tensor: int) -> Arg:
        """Returns the address of a tensor that is no constant."""
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

    def _constant(
        self, name: str, buffer: Buffer, data: ConstantRef, line: str, row: int = 0, note: str = ""
    ) -> str:
        symbol = self._stock.constant(name, buffer, data, line, row, note)
        self._constants.setdefault(symbol)
        return symbol


def finished(
    models: Sequence[tuple[Calls, tuple[Unnamed, ...]]], namer: Namer, weigh: Weigh | None,
    prove: Callable[[Proof], None],
) -> list[tuple[tuple[Function, ...], tuple[Statement, ...]]]:
    """Returns for each model the functions that it calls, and its statements with symbols and with
    the arguments of merged kernels.

    Each distinct kernel of all models is emitted once, named for its first use; its comment lists
    all layers that use it. ``weigh`` decides which kernels are merged; ``prove`` receives the
    proofs of new kernels.
    """
    unnamed = [call for calls, _ in models for call in calls.unnamed]
    keys = [call.key for call in unnamed]
    shared = merge(
        [call.kernel for call in unnamed], weigh, keys, [call.runs for call in unnamed]
    )
    # Kernels of one key are equal, so any of their calls can stand for them.
    uses = {call.key: (call, use) for call, use in zip(unnamed, shared, strict=True)}
    functions: dict[bytes, tuple[str, Kernel]] = {}
    docs: dict[str, list[str]] = {}

    def named(call: FunctionCall | UnnamedCall, calls: Calls) -> FunctionCall:
        if isinstance(call, FunctionCall):
            return call
        equal, use = uses[call.key]
        params = use.kernel.params
        key = call.key if use.kernel is equal.kernel else fingerprint(use.kernel)
        if key not in functions:
            if key not in uses:
                numbers = zip((param.name for param in params), use.values, strict=True)
                prove(partial(verify, use.kernel, dict(numbers)))
            symbol = namer.name(f"{calls.prefix}_{use.kernel.name}")
            functions[key] = (symbol, use.kernel)
        symbol = functions[key][0]
        docs.setdefault(symbol, []).append(call.comment)
        given = (
            ScalarArg(value, param.type) for value, param in zip(use.values, params, strict=True)
        )
        return FunctionCall(symbol, (*call.args, *given), call.comment)

    results = [
        with_calls(statements, partial(named, calls=calls)) for calls, statements in models
    ]
    made = [
        Function(symbol, replace(kernel, doc=tuple(dict.fromkeys(docs[symbol]))))
        for symbol, kernel in functions.values()
    ]
    return [
        (tuple(f for f in made if f.symbol in called), statements)
        for statements in results
        for called in ({call.symbol for call in every_call(statements)},)
    ]


def _start(scope: Scope, step: Step) -> WorkspaceArg:
    """Returns the address in the module's workspace at which the scratch of a step begins."""
    if step.scratch is None:
        return scope.workspace
    if step.scratch.pool:
        return WorkspaceArg(step.scratch.offset, step.scratch.pool)
    return replace(scope.workspace, offset=scope.workspace.offset + step.scratch.offset)


def _advanced(arg: Arg, offset: int) -> Arg:
    """Returns the address ``offset`` bytes further."""
    match arg:
        case InputArg() | OutputArg() | WorkspaceArg() | StateArg() | ConstantArg():
            return replace(arg, offset=arg.offset + offset)
        case ScalarArg():
            raise CrtExportError("a number has no bytes")
        case _:
            assert_never(arg)

