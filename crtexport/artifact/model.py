"""The artifact: all that either backend needs to print, and nothing about neural networks.

Every string that ends in C text as an identifier is already one (``[A-Za-z_][A-Za-z0-9_]*``);
every string that is data (tensor names, comments) is escaped by the printer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from crtexport.ir.modules import Device
from crtexport.ir.types import ConstantRef, TensorType
from crtexport.kernels.ir import Kernel, Scalar

if TYPE_CHECKING:
    from crtexport.devices.image import ImageHeader


class Interface(Struct, frozen=True):
    """An input or output. ``name`` is the model's text, ``field`` its identifier in C.

    ``place``: where in the workspace it lies; None if it lies in a buffer of the caller's.
    """

    name: str
    field: str
    type: TensorType
    place: WorkspaceArg | None = None


class Constant(Struct, frozen=True):
    """A read-only array. ``symbol`` is file-local; ``comment`` says whose it is."""

    symbol: str
    dtype: Scalar
    count: int
    data: ConstantRef
    align: int
    comment: str = ""


class InputArg(Struct, frozen=True):
    """Pointer to input ``index`` plus ``offset`` bytes."""

    index: int
    offset: int = 0


class OutputArg(Struct, frozen=True):
    index: int
    offset: int = 0


class WorkspaceArg(Struct, frozen=True):
    """``offset`` bytes into pool ``pool`` of the workspace."""

    offset: int
    pool: int = 0


class StateArg(Struct, frozen=True):
    """``offset`` bytes into what the model keeps between runs."""

    offset: int


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
    """A function that something else compiled: ``int32_t symbol(inputs, outputs, constants)``, a
    pointer for each, and last the context of its device if it has one; it returns 0 or a code.

    ``device`` is an index into the artifact's. With an ``entry`` it is no C function, but one that
    the program of the device has under this name, and that the device's hook launches. With
    ``commands``, how many pointers there are is for each call to say, and the signature is that of
    microTVM's hook for drivers of an Ethos-U: ``int32_t symbol(void *context, void *commands,
    size_t commands_size, uint64_t *addresses, size_t *sizes, int count)``, with the addresses and
    sizes of all pointers but the first.
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
    ``constant`` on. ``source`` is the program as it was given."""

    device: int
    constant: Constant
    offset: int
    header: ImageHeader
    source: ConstantRef


class Call(Struct, frozen=True):
    """A call of ``symbol``; args: the kernel's buffers, then its params, or an external function's
    inputs, outputs and constants. ``comment``: the layer. ``sizes``: where commands
    are run, the bytes behind each argument."""

    symbol: str
    args: tuple[Arg, ...]
    comment: str = ""
    sizes: tuple[int, ...] = ()


class Branch(Struct, frozen=True):
    """Runs ``then`` if the byte that ``condition`` points to is not 0, else ``other``."""

    condition: Arg
    then: tuple[Statement, ...]
    other: tuple[Statement, ...]
    comment: str = ""


class Loop(Struct, frozen=True):
    """Runs ``before``, then ``body`` if the byte that ``condition`` points to is not 0, and so on
    until it is 0."""

    before: tuple[Statement, ...]
    condition: Arg
    body: tuple[Statement, ...]
    comment: str = ""


MAX_ADDRESSES = 8
"""Most addresses that commands have, as many as an Ethos-U has registers for."""

Statement = Call | Branch | Loop


def every_call(statements: Iterable[Statement]) -> Iterator[Call]:
    """The calls among ``statements`` and in them, in the order in which they are printed."""
    for statement in statements:
        match statement:
            case Call():
                yield statement
            case Branch(then=then, other=other):
                yield from every_call((*then, *other))
            case Loop(before=before, body=body):
                yield from every_call((*before, *body))


def with_calls(
    statements: Iterable[Statement], change: Callable[[Call], Call]
) -> tuple[Statement, ...]:
    """``statements`` with what ``change`` makes of each call, in their order."""
    changed: list[Statement] = []
    for statement in statements:
        match statement:
            case Call():
                changed.append(change(statement))
            case Branch(then=then, other=other):
                changed.append(replace(
                    statement, then=with_calls(then, change), other=with_calls(other, change)
                ))
            case Loop(before=before, body=body):
                changed.append(replace(
                    statement, before=with_calls(before, change), body=with_calls(body, change)
                ))
    return tuple(changed)


def every_condition(statements: Iterable[Statement]) -> Iterator[Arg]:
    """The conditions of ``statements`` and of those in them."""
    for statement in statements:
        match statement:
            case Call():
                continue
            case Branch(condition=condition, then=first, other=second):
                pass
            case Loop(condition=condition, before=first, body=second):
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
    """A name that the function registry knows and the packed function behind it.

    ``external``: something else compiled that.
    """

    name: str
    symbol: str
    external: bool = False


class SharedWorkspace(Struct, frozen=True):
    """The workspace that all models of a package use: ``prefix`` is that of the model that has it,
    ``pools`` are what the names of its pools end in, and their bytes."""

    prefix: str
    pools: tuple[tuple[str, int], ...]
    align: int


class Common(Struct, frozen=True):
    """What a model has in common with the others of its package.

    ``lent``: symbols of functions and constants that it defines and others use as well;
    ``borrowed``: of those that another defines. ``registry``: the others' entries in the function
    registry, if that is with this model. ``workspace``: the one of all, if they share one.
    ``system_lib``: the symbol of the ``TVMModule`` behind the registry, wherever that is; the files
    of all models name it, so that linkers, who take from libraries what is named, find two.
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
    the initial values; ``states`` says what is where. Both are aligned to ``workspace_align``.
    ``externals`` are functions of others that the calls may use, ``devices`` their contexts, which
    ``run`` gets from its caller, ``images`` the programs of some of them.
    ``spilled``: what of the workspace lies in other memories, pools 1 and on.
    With ``io_in_workspace`` every input and output lies in the workspace, and ``run`` takes none.
    ``header_comment`` lines (tool version, model, SHA-256, options) open each generated file.
    ``common``: what it shares with other models. With ``system_lib`` the function registry is
    here: :attr:`registered`.
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

    @property
    def registered(self) -> tuple[RegistryEntry, ...]:
        """What the function registry has: the model's own entries and those of the others. A
        function of others is there once, whichever models bring it."""
        found: list[RegistryEntry] = []
        known: set[RegistryEntry] = set()
        for entry in (*self.registry, *self.common.registry):
            if not entry.external or entry not in known:
                found.append(entry)
                known.add(entry)
        return tuple(found)

    @property
    def own_functions(self) -> tuple[Function, ...]:
        """The functions that this model defines."""
        return tuple(f for f in self.functions if f.symbol not in self.common.borrowed)

    @property
    def workspace_total(self) -> int:
        """The bytes of all pools of the workspace."""
        return self.workspace_size + sum(pool.size for pool in self.spilled)

    @property
    def prefix(self) -> str:
        """``tvmgen_<module>``"""
        return f"tvmgen_{self.module}"

    @property
    def constants_size(self) -> int:
        """Bytes of constants and of programs of devices."""
        return sum(c.data.nbytes for c in (*self.constants, *self.image_constants))

    @property
    def image_constants(self) -> tuple[Constant, ...]:
        """The constants that hold programs of devices, each once."""
        return tuple({i.constant.symbol: i.constant for i in self.images}.values())

    @property
    def inflated_size(self) -> int:
        """Bytes of the buffer that compressed programs are inflated into, one at a time."""
        return max((i.header.original_size for i in self._inflated), default=0)

    @property
    def inflated_align(self) -> int:
        """What the buffer's address is a multiple of."""
        return max((i.header.align for i in self._inflated), default=1)

    @property
    def _inflated(self) -> tuple[DeviceImage, ...]:
        return tuple(i for i in self.images if i.header.compressed)

    @property
    def reached_constants(self) -> tuple[Constant, ...]:
        """The constants that the calls read; compilers would drop the others, or warn of them."""
        args = [arg for call in every_call(self.calls) for arg in call.args]
        args += every_condition(self.calls)
        reached = {arg.symbol for arg in args if isinstance(arg, ConstantArg)}
        return tuple(c for c in self.constants if c.symbol in reached)
