"""The artifact: everything that a backend prints, without any knowledge of neural networks.

Every string that ends in C text as an identifier is already one (``[A-Za-z_][A-Za-z0-9_]*``);
every string that is data (tensor names, comments) is escaped by the printer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from msgspec import Struct

from crtexport.ir.modules import Device
from crtexport.ir.types import ConstantRef, TensorType
from crtexport.kir.language import Kernel, Scalar
from crtexport.support.short import count, line

if TYPE_CHECKING:
    from crtexport.devices.image import ImageHeader


class Interface(Struct, frozen=True):
    """An input or output. ``name`` is the model's text, ``field`` its identifier in C.

    ``place``: its address in the workspace; None if it lies in a buffer of the caller's.
    """

    name: str
    field: str
    type: TensorType
    place: WorkspaceArg | None = None


class Constant(Struct, frozen=True):
    """A read-only array. ``symbol`` is file-local; ``comment`` says whose it is, ``note`` what its
    elements are. ``row``: elements that belong together; 0 where that is none or all. ``words``:
    each element packs several numbers, so that its bits say more than its value."""

    symbol: str
    dtype: Scalar
    count: int
    data: ConstantRef
    align: int
    comment: str = ""
    note: str = ""
    row: int = 0
    words: bool = False


class InputArg(Struct, frozen=True):
    """Pointer to input ``index`` plus ``offset`` bytes. ``steps``: by how many bytes it moves with
    each run of the body of each Repeat around it, the outermost first; none if it doesn't."""

    index: int
    offset: int = 0
    steps: tuple[int, ...] = ()


class OutputArg(Struct, frozen=True):
    """As InputArg."""

    index: int
    offset: int = 0
    steps: tuple[int, ...] = ()


class WorkspaceArg(Struct, frozen=True):
    """``offset`` bytes into pool ``pool`` of the workspace; ``steps`` as those of InputArg."""

    offset: int
    pool: int = 0
    steps: tuple[int, ...] = ()


class StateArg(Struct, frozen=True):
    """``offset`` bytes into the model's state, which it keeps between runs; ``steps`` as those of
    InputArg."""

    offset: int
    steps: tuple[int, ...] = ()


class ConstantArg(Struct, frozen=True):
    symbol: str
    offset: int = 0


class ScalarArg(Struct, frozen=True):
    value: int | float
    type: Scalar


Arg = InputArg | OutputArg | WorkspaceArg | StateArg | ConstantArg | ScalarArg


class Function(Struct, frozen=True):
    """A kernel under the file-local symbol it is called by."""

    symbol: str
    kernel: Kernel


class ExternalFunction(Struct, frozen=True):
    """A function that another tool compiled: ``int32_t symbol(inputs, outputs, constants)``, a
    pointer for each, and last the context of its device if it has one; it returns 0 or a code.

    ``device`` is an index into the artifact's. With an ``entry`` it is no C function, but one of
    the device's program by this name, and the device's hook launches it. With ``commands``, the
    number of pointers differs between calls, and the signature is that of microTVM's hook for
    drivers of an Ethos-U: ``int32_t symbol(void *context, void *commands, size_t commands_size,
    uint64_t *addresses, size_t *sizes, int count)``, with the addresses and sizes of all pointers
    but the first.
    """

    symbol: str
    inputs: int
    outputs: int
    constants: int = 0
    device: int | None = None
    entry: str | None = None
    commands: bool = False


class DeviceImage(Struct, frozen=True):
    """The program of device ``device`` in read-only memory: an image from byte ``offset`` of
    ``constant`` on. ``source`` is the original program."""

    device: int
    constant: Constant
    offset: int
    header: ImageHeader
    source: ConstantRef


class FunctionCall(Struct, frozen=True):
    """A call of ``symbol``; args: the kernel's buffers, then its params, or an external function's
    inputs, outputs and constants. ``comment``: the layer. ``sizes``: where commands
    are run, the bytes behind each argument."""

    symbol: str
    args: tuple[Arg, ...]
    comment: str = ""
    sizes: tuple[int, ...] = ()


C = TypeVar("C")
D = TypeVar("D")


class BranchStatement(Struct, Generic[C], frozen=True):
    """Runs ``then`` if the byte that ``condition`` points to is not 0, else ``other``."""

    condition: Arg
    then: tuple[StatementOf[C], ...]
    other: tuple[StatementOf[C], ...]
    comment: str = ""


class LoopStatement(Struct, Generic[C], frozen=True):
    """Runs ``before``, then ``body`` if the byte that ``condition`` points to is not 0, and so on
    until it is 0."""

    before: tuple[StatementOf[C], ...]
    condition: Arg
    body: tuple[StatementOf[C], ...]
    comment: str = ""


class Repeat(Struct, Generic[C], frozen=True):
    """Runs ``body`` so many times; once, it is no loop, but a group of statements."""

    times: int
    body: tuple[StatementOf[C], ...]
    comment: str = ""


class RowRepeat(Struct, Generic[C], frozen=True):
    """Rows that come ``times`` times, or forever where that is 0: ``segments`` are the statements
    that run with each of them. Where they come several times, they are the body of a Repeat."""

    segments: tuple[tuple[StatementOf[C], ...], ...]
    times: int = 1

    @property
    def rows(self) -> int:
        """Returns how many rows these are in all; of those that come forever, once."""
        return len(self.segments) * max(self.times, 1)


class Feed(Struct, Generic[C], frozen=True):
    """The statements that run with each row of input ``index``, of ``row_bytes`` each, which are
    given one after the other: those of its segment, in which InputArg is the row.

    ``repeats`` say which rows have which segments. After ``rows`` rows there is a result; after
    every ``hop`` more another one, for which the last repeat comes forever, unless that is 0.
    ``counter``: two words of the workspace, the number of the next row (in the last repeat, of the
    first that is like it) and how many rows are still missing.
    """

    index: int
    row_bytes: int
    rows: int
    hop: int
    repeats: tuple[RowRepeat[C], ...]
    counter: WorkspaceArg
    comment: str = ""

    @property
    def segments(self) -> tuple[tuple[StatementOf[C], ...], ...]:
        """Returns the segments in their order, each once."""
        return tuple(segment for repeat in self.repeats for segment in repeat.segments)

    def places(self) -> Iterator[tuple[RowRepeat[C], int, int]]:
        """Yields each repeat with its first row, and the position of its first segment."""
        row, position = 0, 0
        for repeat in self.repeats:
            yield repeat, row, position
            row += repeat.rows
            position += len(repeat.segments)

    @property
    def counted(self) -> frozenset[int]:
        """Returns the positions of the segments that are bodies of loops."""
        return frozenset(
            number for repeat, _, position in self.places() if repeat.times > 1
            for number in range(position, position + len(repeat.segments))
        )

    @property
    def again(self) -> tuple[int, int]:
        """Returns the first row of those that come forever, and the row that is like it."""
        repeat, row, _ = list(self.places())[-1]
        return row, row + len(repeat.segments)

    def order(self) -> Iterator[tuple[int, int | None]]:
        """Yields the position of the segment of each row, and which iteration of a loop it is; None
        outside of loops. Where there are further results, that goes on forever."""
        position = 0
        for repeat in self.repeats:
            for run in itertools.count() if repeat.times == 0 else range(repeat.times):
                for number in range(len(repeat.segments)):
                    yield position + number, run if repeat.times > 1 else None
            position += len(repeat.segments)


StatementOf: TypeAlias = C | BranchStatement[C] | LoopStatement[C] | Repeat[C] | Feed[C]
"""A statement: a call, or a branch or loop of statements."""
Statement: TypeAlias = StatementOf[FunctionCall]

MAX_ADDRESSES = 8
"""Most addresses that commands have: the number of an Ethos-U's registers for them."""


def every_call(statements: Iterable[StatementOf[C]]) -> Iterator[C]:
    """Yields the calls among ``statements`` and inside them, in the order in which they are
    printed."""
    for statement in statements:
        match statement:
            case BranchStatement(then=then, other=other):
                yield from every_call((*then, *other))
            case LoopStatement(before=before, body=body):
                yield from every_call((*before, *body))
            case Repeat(body=body):
                yield from every_call(body)
            case Feed():
                for segment in statement.segments:
                    yield from every_call(segment)
            case call:
                yield call


def with_calls(
    statements: Iterable[StatementOf[C]], change: Callable[[C], D]
) -> tuple[StatementOf[D], ...]:
    """Returns ``statements`` with each call replaced by the result of ``change``, in their order.
    """
    changed: list[StatementOf[D]] = []
    for statement in statements:
        match statement:
            case BranchStatement(condition, then, other, comment):
                changed.append(BranchStatement(
                    condition, with_calls(then, change), with_calls(other, change), comment
                ))
            case LoopStatement(before, condition, body, comment):
                changed.append(LoopStatement(
                    with_calls(before, change), condition, with_calls(body, change), comment
                ))
            case Repeat(times, body, comment):
                changed.append(Repeat(times, with_calls(body, change), comment))
            case Feed():
                repeats = tuple(
                    RowRepeat(
                        tuple(with_calls(one, change) for one in repeat.segments), repeat.times
                    )
                    for repeat in statement.repeats
                )
                changed.append(Feed(
                    statement.index, statement.row_bytes, statement.rows, statement.hop, repeats,
                    statement.counter, statement.comment,
                ))
            case call:
                changed.append(change(call))
    return tuple(changed)


def every_condition(statements: Iterable[Statement]) -> Iterator[Arg]:
    """Yields the conditions of ``statements`` and of those inside them."""
    for statement in statements:
        match statement:
            case FunctionCall() | Feed():
                continue
            case Repeat(body=body):
                yield from every_condition(body)
                continue
            case BranchStatement(condition=condition, then=first, other=second):
                pass
            case LoopStatement(condition=condition, before=first, body=second):
                pass
        yield condition
        yield from every_condition((*first, *second))


class Pool(Struct, frozen=True):
    """A further part of the workspace: ``size`` bytes of the memory called ``memory``."""

    memory: str
    size: int


class State(Struct, frozen=True):
    """A variable of the model, ``offset`` bytes into its state. ``name`` is the model's text."""

    name: str
    type: TensorType
    offset: int


class RegistryEntry(Struct, frozen=True):
    """A name in the function registry and its packed function.

    ``external``: another tool compiled that.
    """

    name: str
    symbol: str
    external: bool = False


class SharedWorkspace(Struct, frozen=True):
    """The workspace that all models of a package use: ``prefix`` is that of the model that owns it,
    ``pools`` are the suffixes of its pools' names, and their bytes."""

    prefix: str
    pools: tuple[tuple[str, int], ...]
    align: int


class Common(Struct, frozen=True):
    """The parts that a model shares with the others of its package.

    ``lent``: symbols of functions and constants that it defines and others use as well;
    ``borrowed``: those that another model defines. ``registry``: the others' entries in the
    function registry, if this model has that. ``workspace``: the one of all, if they share one.
    ``system_lib``: the symbol of the ``TVMModule`` behind the registry, wherever that is; the files
    of all models name it, so that linkers, which take named members from libraries, report two.
    """

    lent: frozenset[str] = frozenset()
    borrowed: frozenset[str] = frozenset()
    registry: tuple[RegistryEntry, ...] = ()
    workspace: SharedWorkspace | None = None
    system_lib: str = ""


class Artifact(Struct, frozen=True):
    """One model, ready to print.

    ``module`` is the sanitized model name: symbols are ``tvmgen_<module>_*``. ``workspace_caller``
    means that ``run`` takes the workspace from its caller instead of owning a static one, and the
    state with it: ``state_size`` bytes that the model keeps between runs, in which zeros stand for
    the initial values; ``states`` lists the variables in it. Both are aligned to
    ``workspace_align``. ``externals`` are external functions that the calls may use, ``devices``
    their contexts, which ``run`` gets from its caller, ``images`` the programs of some of them.
    ``spilled``: parts of the workspace in other memories, pools 1 and on. With ``io_in_workspace``
    every input and output lies in the workspace, and ``run`` takes none. ``header_comment`` lines
    (tool version, model, SHA-256, options) open each generated file. ``common``: its parts in
    common with other models. With ``system_lib`` it has the function registry: :attr:`registered`.
    """

    module: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    constants: tuple[Constant, ...]
    functions: tuple[Function, ...]
    calls: tuple[Statement, ...]
    workspace_size: int
    workspace_align: int
    workspace_caller: bool
    system_lib: bool
    registry: tuple[RegistryEntry, ...]
    header_comment: tuple[str, ...] = ()
    state_size: int = 0
    states: tuple[State, ...] = ()
    io_in_workspace: bool = False
    externals: tuple[ExternalFunction, ...] = ()
    devices: tuple[Device, ...] = ()
    spilled: tuple[Pool, ...] = ()
    images: tuple[DeviceImage, ...] = ()
    common: Common = Common()

    def __repr__(self) -> str:
        return line(
            "Artifact", f"{self.module}:", f"{count(len(self.functions), 'function')},",
            f"{count(len(self.calls), 'call')}, {count(len(self.constants), 'constant')}",
        )

    @property
    def feed(self) -> Feed[FunctionCall] | None:
        """Returns what runs with rows of an input that are given one after the other; None where
        all inputs are given as a whole."""
        return next((s for s in self.calls if isinstance(s, Feed)), None)

    @property
    def registered(self) -> tuple[RegistryEntry, ...]:
        """Returns the entries of the function registry: the model's own and those of the others. An
        external function is listed once, whichever models use it."""
        found: list[RegistryEntry] = []
        known: set[RegistryEntry] = set()
        for entry in (*self.registry, *self.common.registry):
            if not entry.external or entry not in known:
                found.append(entry)
                known.add(entry)
        return tuple(found)

    @property
    def own_functions(self) -> tuple[Function, ...]:
        """Returns the functions that this model defines."""
        return tuple(f for f in self.functions if f.symbol not in self.common.borrowed)

    @property
    def workspace_total(self) -> int:
        """Returns the bytes of all pools of the workspace."""
        return self.workspace_size + sum(pool.size for pool in self.spilled)

    @property
    def prefix(self) -> str:
        """``tvmgen_<module>``"""
        return f"tvmgen_{self.module}"

    @property
    def constants_size(self) -> int:
        """Returns the bytes of constants and of device programs."""
        return sum(c.data.nbytes for c in (*self.constants, *self.image_constants))

    @property
    def image_constants(self) -> tuple[Constant, ...]:
        """Returns the constants that contain device programs, each once."""
        return tuple({i.constant.symbol: i.constant for i in self.images}.values())

    @property
    def inflated_size(self) -> int:
        """Returns the bytes of the buffer that compressed programs are inflated into, one at a
        time."""
        return max((i.header.original_size for i in self._inflated), default=0)

    @property
    def inflated_align(self) -> int:
        """Returns the alignment of the buffer's address."""
        return max((i.header.align for i in self._inflated), default=1)

    @property
    def _inflated(self) -> tuple[DeviceImage, ...]:
        return tuple(i for i in self.images if i.header.compressed)

    @property
    def reached_constants(self) -> tuple[Constant, ...]:
        """Returns the constants that the calls read; compilers would drop the others, or warn of
        them."""
        args = [arg for call in every_call(self.calls) for arg in call.args]
        args += every_condition(self.calls)
        reached = {arg.symbol for arg in args if isinstance(arg, ConstantArg)}
        return tuple(c for c in self.constants if c.symbol in reached)
