"""TVM's C structures and calls for ctypes: packed functions, the function registry, metadata."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact
from crtexport.ir.types import DType
from crtexport.simulation.library import LoadedCode
from crtexport.simulation.simulation import Simulation
from crtexport.support.errors import CrtExportError, RunFailedError

Array = npt.NDArray[np.generic]
_CPU = 1


class DLDevice(ctypes.Structure):
    """``DLDevice``."""

    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    """``DLDataType``."""

    _fields_ = [
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)
    ]


class DLTensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32),
        ("dtype", DLDataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


class TVMValue(ctypes.Union):
    """``TVMValue``."""

    _fields_ = [
        ("v_int64", ctypes.c_int64), ("v_float64", ctypes.c_double), ("v_handle", ctypes.c_void_p)
    ]


class TVMFuncRegistry(ctypes.Structure):
    """``TVMFuncRegistry``."""

    _fields_ = [
        ("names", ctypes.c_void_p), ("funcs", ctypes.POINTER(ctypes.c_void_p))
    ]


class TVMModule(ctypes.Structure):
    """``TVMModule``."""

    _fields_ = [("registry", ctypes.POINTER(TVMFuncRegistry))]


class TVMTensorInfo(ctypes.Structure):
    """``TVMTensorInfo``."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("num_shape", ctypes.c_int64), ("dtype", DLDataType),
    ]


class TVMMetadata(ctypes.Structure):
    """``TVMMetadata``; constant pools are not used."""

    _fields_ = [
        ("version", ctypes.c_int64),
        ("inputs", ctypes.POINTER(TVMTensorInfo)), ("num_inputs", ctypes.c_int64),
        ("outputs", ctypes.POINTER(TVMTensorInfo)), ("num_outputs", ctypes.c_int64),
        ("workspace_pools", ctypes.POINTER(TVMTensorInfo)),
        ("num_workspace_pools", ctypes.c_int64),
        ("constant_pools", ctypes.c_void_p), ("num_constant_pools", ctypes.c_int64),
        ("mod_name", ctypes.c_char_p),
    ]


_PACKED = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(TVMValue), ctypes.POINTER(ctypes.c_int), ctypes.c_int,
    ctypes.POINTER(TVMValue), ctypes.POINTER(ctypes.c_int), ctypes.c_void_p,
)


class PackedResult(Struct, frozen=True):
    """The result of a packed function: its code, and the value with its type code."""

    code: int
    value: int | None
    type_code: int


class CrtTensorInfo(Struct, frozen=True):
    """A ``TVMTensorInfo``; ``dtype`` is (code, bits, lanes)."""

    name: str
    shape: tuple[int, ...]
    dtype: tuple[int, int, int]


class CrtMetadata(Struct, frozen=True):
    """A ``TVMMetadata``."""

    version: int
    inputs: tuple[CrtTensorInfo, ...]
    outputs: tuple[CrtTensorInfo, ...]
    workspace_pools: tuple[CrtTensorInfo, ...]
    mod_name: str


def tensor(array: Array, byte_offset: int = 0) -> DLTensor:
    """Returns a ``DLTensor`` over ``array``, whose data pointer is ``byte_offset`` before its
    elements.

    ``array`` must outlive the result.
    """
    shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    code, bits, lanes = abi.dl_data_type(DType(array.dtype.newbyteorder("=").name))
    return DLTensor(
        array.ctypes.data - byte_offset, DLDevice(_CPU, 0), array.ndim,
        DLDataType(code, bits, lanes), shape, None, byte_offset,
    )


class SystemLib:
    """The function registry behind ``TVMSystemLibEntryPoint``, read as TVM's C runtime reads it."""

    def __init__(self, library: LoadedCode) -> None:
        """Raises CrtExportError when the code has no such entry point."""
        entry = library.address("TVMSystemLibEntryPoint")
        if entry is None:
            raise CrtExportError(
                "the code has no function registry",
                hint="it was exported with --no-system-lib",
            )
        self._library = library  # its code goes when it goes
        module = ctypes.CFUNCTYPE(ctypes.POINTER(TVMModule))(entry)()
        self._registry: TVMFuncRegistry = module.contents.registry.contents
        self._handle = ctypes.addressof(self._registry)
        self.count = int.from_bytes(ctypes.string_at(self._registry.names or 0, 2), "little")
        self.names = tuple(self._read_names())

    def _read_names(self) -> list[str]:
        address = (self._registry.names or 0) + 2
        names = []
        while name := ctypes.string_at(address):
            names.append(name.decode("utf-8"))
            address += len(name) + 1
        return names

    def function(self, name: str) -> Callable[..., int]:
        """Returns the packed function of this name, callable with ctypes arguments."""
        if name not in self.names:
            raise CrtExportError("the registry doesn't know this function", location=name)
        return _PACKED(self._registry.funcs[self.names.index(name)])

    def call(
        self, name: str, tensors: Sequence[DLTensor] = (),
        type_code: int = abi.TYPE_CODE_DLTENSOR,
    ) -> PackedResult:
        """Calls a packed function with ``tensors``."""
        values = (TVMValue * max(len(tensors), 1))()
        codes = (ctypes.c_int * max(len(tensors), 1))(*[type_code] * len(tensors))
        for value, item in zip(values, tensors, strict=False):
            value.v_handle = ctypes.addressof(item)
        result, result_code = TVMValue(), ctypes.c_int(0)
        code = self.function(name)(
            values, codes, len(tensors), ctypes.byref(result), ctypes.byref(result_code),
            self._handle,
        )
        return PackedResult(code, result.v_handle, result_code.value)

    def metadata(self, module: str) -> CrtMetadata:
        """Returns the result of ``tvmgen_<module>_get_c_metadata``."""
        name = f"tvmgen_{module}_get_c_metadata"
        result = self.call(name)
        if result.code or result.type_code != abi.TYPE_CODE_OPAQUE_HANDLE or not result.value:
            raise RunFailedError(f"the function returned {result}", location=name)
        raw = TVMMetadata.from_address(result.value)
        return CrtMetadata(
            raw.version,
            _infos(raw.inputs, raw.num_inputs),
            _infos(raw.outputs, raw.num_outputs),
            _infos(raw.workspace_pools, raw.num_workspace_pools),
            raw.mod_name.decode("utf-8"),
        )


def _infos(array: ctypes._Pointer[TVMTensorInfo], count: int) -> tuple[CrtTensorInfo, ...]:
    return tuple(
        CrtTensorInfo(
            info.name.decode("utf-8"),
            tuple(info.shape[i] for i in range(info.num_shape)),
            (info.dtype.code, info.dtype.bits, info.dtype.lanes),
        )
        for info in (array[i] for i in range(count))
    )


def simulation_of(artifact: Artifact, library: LoadedCode) -> Simulation:
    """Returns a simulation of a backend's code for ``artifact``."""
    return Simulation(
        artifact.module, artifact.inputs, artifact.outputs, library, artifact.workspace_size,
        artifact.workspace_align, artifact.workspace_caller, artifact.state_size,
        artifact.io_in_workspace, len(artifact.devices),
        tuple((p.memory, p.size) for p in artifact.spilled),
        (artifact.inflated_size, artifact.inflated_align) if artifact.workspace_caller else (0, 1),
        None if artifact.feed is None else (
            artifact.feed.rows, artifact.feed.row_bytes, artifact.feed.hop
        ),
    )


def run_packed(simulation: Simulation, inputs: Sequence[Array]) -> list[Array]:
    """As ``simulation.run``, but through the function registry and the packed function."""
    memories = simulation._memories(inputs)
    tensors = [*simulation.inputs, *simulation.outputs]
    views = [
        memory.bytes.view(t.type.dtype.numpy).reshape(t.type.shape)
        for memory, t in zip(memories, tensors, strict=False)
    ]
    views += [m.bytes for m in memories[len(views) :]]
    name = f"tvmgen_{simulation.module}_run"
    result = SystemLib(simulation.library).call(name, [tensor(v) for v in views])
    return simulation._results(memories, name, result.code)


def reset_packed(simulation: Simulation) -> int:
    """As ``simulation.reset``, but through the function registry; the code that it returns."""
    tensors = [tensor(memory.bytes) for memory in simulation._pools()[-1:]]
    name = f"tvmgen_{simulation.module}_reset"
    return SystemLib(simulation.library).call(name, tensors).code
