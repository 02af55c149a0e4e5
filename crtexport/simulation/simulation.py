"""Runs an exported model on this computer, through its C interface."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from crtexport.artifact.model import Interface
from crtexport.simulation.library import LoadedCode
from crtexport.support.errors import CrtExportError, RunFailedError

Array = npt.NDArray[np.generic]
_GUARD = 64
_PATTERN = 0xA5
_RESULTS_BEFORE = 3
"""Of a network that goes on from one result to the next, those before the one that is returned."""
_CONTEXT = 64  # bytes of a device context: more than a simulated device needs


class _GuardedMemory:
    """Aligned bytes between two guards, which show writes past the ends."""

    def __init__(self, name: str, nbytes: int, align: int = 16) -> None:
        self._name = name
        raw = np.full(nbytes + 2 * _GUARD + align, _PATTERN, dtype=np.uint8)
        start = _GUARD + -(raw.ctypes.data + _GUARD) % align
        self.bytes = raw[start : start + nbytes]
        self._guards = (raw[:start], raw[start + nbytes :])

    @property
    def address(self) -> int:
        return self.bytes.ctypes.data

    def check(self) -> None:
        if any((guard != _PATTERN).any() for guard in self._guards):
            raise RunFailedError("the model wrote outside of this buffer", location=self._name)


class Simulation(Struct, frozen=True, eq=False):
    """A loaded model.

    ``workspace_size`` and ``state_size``, in bytes, are used if ``workspace_caller``: each run then
    gets a workspace of its own, and all runs share the state, which keeps its values between runs.
    If the model owns its memory, all simulations of one library share it. ``devices`` is the number
    of contexts that the model takes; they are zeroed memory. ``image_buffer``: bytes and alignment
    of the caller's buffer for device programs. ``feed``: the number of rows of the input, the bytes
    of a row, and the number of rows until the next result (0: there is none), if rows are passed
    one after the other.
    """

    module: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    library: LoadedCode
    workspace_size: int = 0
    workspace_align: int = 16
    workspace_caller: bool = False
    state_size: int = 0
    io_in_workspace: bool = False
    devices: int = 0
    spilled: tuple[tuple[str, int], ...] = ()
    image_buffer: tuple[int, int] = (0, 1)
    feed: tuple[int, int, int] | None = None
    _state: list[_GuardedMemory] = field(default_factory=list)
    _contexts_held: list[ctypes.Array[ctypes.c_char]] = field(default_factory=list)

    def reset(self) -> None:
        """Calls ``tvmgen_<m>_reset``: variables get their initial values. Does nothing without
        variables."""
        if not self.state_size:
            return
        struct = _pointers([m.address for m in self._pools()])
        arguments = (ctypes.byref(struct),) if self.workspace_caller else ()
        name = f"tvmgen_{self.module}_reset"
        code = self._function(name, len(arguments))(*arguments)
        if code:
            raise RunFailedError(f"the model returned the error {code}", location=name)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Calls ``tvmgen_<m>_run`` on ``inputs`` (in order, exact shapes and dtypes).

        Raises CrtExportError, naming the tensor, for inputs that don't fit; RunFailedError when
        the model returns an error or writes outside of its buffers.
        """
        if self.io_in_workspace:
            return self._run_inside(inputs)
        if self.feed is not None:
            return self._run_by_rows(inputs, *self.feed)
        return self.run_whole(inputs)

    def run_whole(self, inputs: Sequence[Array]) -> list[Array]:
        """Calls ``tvmgen_<m>_run`` with the whole input even if the model can take it row by row;
        otherwise as :meth:`run`."""
        memories = self._memories(inputs)
        count, outputs = len(self.inputs), len(self.outputs)
        addresses = [m.address for m in memories]
        structs = [
            _pointers(addresses[:count]), _pointers(addresses[count : count + outputs]),
            *([_pointers(addresses[count + outputs :])] if memories[count + outputs :] else []),
        ]
        structs += self._contexts()
        name = f"tvmgen_{self.module}_run"
        code = self._function(name, len(structs))(*map(ctypes.byref, structs))
        return self._results(memories, name, code)

    def _run_by_rows(
        self, inputs: Sequence[Array], rows: int, row_bytes: int, hop: int
    ) -> list[Array]:
        """Calls ``tvmgen_<m>_begin``, ``_feed`` and ``_finish``. Rows are passed one, two, three at
        a time, and so on, in memory that is gone after the call. If a network continues from one
        result to the next, other rows are passed first, and the last result is returned."""
        self._check_inputs(inputs)
        pools = self._pools()
        more = (ctypes.byref(_pointers([m.address for m in pools])),) if pools else ()
        self._checked(f"tvmgen_{self.module}_begin", pools, *more)
        (array,) = inputs
        window = np.frombuffer(array.tobytes(), np.uint8).reshape(rows, row_bytes)
        before = hop * _RESULTS_BEFORE
        given = np.concatenate([np.resize(window, (before, row_bytes)), window])
        done, count, results = 0, 0, []
        while done < len(given):
            count = min(count % 3 + 1, len(given) - done)
            memory = _GuardedMemory("rows", count * row_bytes)
            memory.bytes[:] = given[done : done + count].reshape(-1)
            name = f"tvmgen_{self.module}_feed"
            missing = self._checked(
                name, [memory, *pools], ctypes.c_void_p(memory.address), count, *more,
            )
            done += count
            expected = rows - done if done <= rows else (rows - done) % hop
            if missing != expected:
                raise RunFailedError(
                    f"the model wants {missing} more rows, not {expected}", location=name
                )
            memory.bytes[:] = _PATTERN
            if not missing:
                outputs = [_GuardedMemory(t.name, t.type.nbytes) for t in self.outputs]
                struct = ctypes.byref(_pointers([m.address for m in outputs]))
                self._checked(f"tvmgen_{self.module}_finish", [*outputs, *pools], struct, *more)
                results = self._arrays(outputs)
        return results

    def _checked(
        self, name: str, memories: Sequence[_GuardedMemory], *arguments: object
    ) -> int:
        """Calls a function and returns its result; raises RunFailedError for an error code."""
        numbers = [n for n, argument in enumerate(arguments) if isinstance(argument, int)]
        code = int(self._function(name, len(arguments), numbers=numbers)(*arguments))
        _accept(memories, name, min(code, 0))
        return code

    def _run_inside(self, inputs: Sequence[Array]) -> list[Array]:
        """As :meth:`run`, for inputs and outputs that lie in the workspace."""
        self._check_inputs(inputs)
        pools = self._pools()
        arguments = (ctypes.byref(_pointers([m.address for m in pools])),) if pools else ()
        contexts = tuple(map(ctypes.byref, self._contexts()))
        for to, array in zip(self._mapped("inputs", arguments), inputs, strict=True):
            ctypes.memmove(to, array.tobytes(), array.nbytes)
        name = f"tvmgen_{self.module}_run"
        code = self._function(name, len(arguments) + len(contexts))(*arguments, *contexts)
        _accept(pools, name, code)
        return [
            np.frombuffer(ctypes.string_at(at, tensor.type.nbytes), tensor.type.dtype.numpy)
            .reshape(tensor.type.shape)
            for at, tensor in zip(self._mapped("outputs", arguments), self.outputs, strict=True)
        ]

    def _mapped(self, side: str, arguments: Sequence[object]) -> list[int]:
        """Returns the addresses of a side's tensors in the workspace: ``tvmgen_<m>_map_inputs`` or
        outputs."""
        count = len(self.inputs if side == "inputs" else self.outputs)
        members = [(f"m{i}", ctypes.c_void_p) for i in range(max(count, 1))]
        struct = type("Tensors", (ctypes.Structure,), {"_fields_": members})
        name = f"tvmgen_{self.module}_map_{side}"
        found = self._function(name, len(arguments), struct)(*arguments)
        addresses = [getattr(found, member) for member, _ in members[:count]]
        if None in addresses:
            raise RunFailedError(f"the model has no place for its {side}", location=name)
        return addresses

    def _contexts(self) -> list[ctypes.Array[ctypes.c_void_p]]:
        """Returns the struct of device contexts; empty if the model takes none."""
        if not self.devices:
            return []
        if not self._contexts_held:
            self._contexts_held.extend(
                ctypes.create_string_buffer(_CONTEXT) for _ in range(self.devices)
            )
        return [_pointers([ctypes.addressof(context) for context in self._contexts_held])]

    def _pools(self) -> list[_GuardedMemory]:
        """Returns the caller's memory other than inputs and outputs, as in abi.caller_pools."""
        if not self.workspace_caller:
            return []
        if self.state_size and not self._state:
            self._state.append(_GuardedMemory("state", self.state_size, self.workspace_align))
            self._state[0].bytes[:] = 0
        pools = (("workspace", self.workspace_size), *self.spilled)
        size, align = self.image_buffer
        return [
            *(_GuardedMemory(name, size, self.workspace_align) for name, size in pools if size),
            *([_GuardedMemory("device_image", size, align)] if size else []),
            *self._state,
        ]

    def _function(
        self, symbol: str, arity: int, returned: type[ctypes._CDataType] = ctypes.c_int32,
        numbers: Sequence[int] = (),
    ) -> ctypes._FuncPointer:
        """Returns a function of the code; its arguments are pointers, except those in ``numbers``.
        """
        address = self.library.address(symbol)
        if address is None:
            raise CrtExportError("the code has no such function", location=symbol)
        kinds = [ctypes.c_uint32 if n in numbers else ctypes.c_void_p for n in range(arity)]
        return ctypes.CFUNCTYPE(returned, *kinds)(address)

    def _memories(self, inputs: Sequence[Array]) -> list[_GuardedMemory]:
        """Returns buffers for inputs (filled), outputs and the caller's pools."""
        self._check_inputs(inputs)
        memories = [_GuardedMemory(t.name, t.type.nbytes) for t in (*self.inputs, *self.outputs)]
        for memory, array in zip(memories, inputs, strict=False):
            memory.bytes[:] = np.frombuffer(array.tobytes(), dtype=np.uint8)
        return memories + self._pools()

    def _check_inputs(self, inputs: Sequence[Array]) -> None:
        if len(inputs) != len(self.inputs):
            raise CrtExportError(
                f"the model has {len(self.inputs)} inputs, {len(inputs)} arrays were given"
            )
        for tensor, array in zip(self.inputs, inputs, strict=True):
            _check_input(tensor, array)

    def _results(self, memories: Sequence[_GuardedMemory], name: str, code: int) -> list[Array]:
        _accept(memories, name, code)
        return self._arrays(memories[len(self.inputs) : len(self.inputs) + len(self.outputs)])

    def _arrays(self, outputs: Sequence[_GuardedMemory]) -> list[Array]:
        """Returns the contents of the buffers of outputs."""
        return [
            memory.bytes.view(t.type.dtype.numpy).reshape(t.type.shape).copy()
            for memory, t in zip(outputs, self.outputs, strict=True)
        ]


def _accept(memories: Sequence[_GuardedMemory], name: str, code: int) -> None:
    """Raises RunFailedError if ``name`` returned an error or overwrote a guard."""
    if code:
        raise RunFailedError(f"the model returned the error {code}", location=name)
    for memory in memories:
        memory.check()


def _check_input(tensor: Interface, array: Array) -> None:
    if array.shape != tensor.type.shape:
        raise CrtExportError(
            f"the input has shape {tensor.type.shape}, the array {array.shape}",
            location=tensor.name,
        )
    if array.dtype != tensor.type.dtype.numpy:
        raise CrtExportError(
            f"the input is {tensor.type.dtype.value}, the array {array.dtype}",
            location=tensor.name,
        )


def _pointers(addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    """Returns a struct of pointers; never of size zero, which C doesn't have."""
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
