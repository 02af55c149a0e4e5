"""The binary interface that both backends print: codes, conventions and tables, defined once.

The packed convention is TVM's: ``int f(TVMValue *args, int *type_codes, int num_args, TVMValue
*ret_value, int *ret_type_code, void *resource_handle)``. The arguments of a model's packed function
are its inputs, its outputs and its caller's pools (:func:`caller_pools`), each a ``DLTensor *``
(type code 7 or 13), whose data starts ``byte_offset`` bytes after ``data``, then the contexts of
its devices (type code 3, or 4 for NULL). If inputs and outputs lie in the workspace, the packed
function copies them there and back, so that its callers need not know.
"""

from __future__ import annotations

from collections.abc import Iterable

from crtexport.artifact.model import Artifact, Interface, RegistryEntry
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

OK = 0
ERROR_NULL = -1
"""A null pointer: the struct itself, one of its fields, or a tensor's data."""
ERROR_ARGUMENTS = -2
"""A packed call with the wrong number of arguments or a wrong type code."""

ERROR_ROWS = -3
"""More rows of an input than are needed, or a result before all rows were passed."""

TYPE_CODE_OPAQUE_HANDLE = 3
TYPE_CODE_DLTENSOR = 7
TYPE_CODE_NDARRAY = 13
TYPE_CODE_NULL = 4
CONTEXT_TYPE_CODES = (TYPE_CODE_OPAQUE_HANDLE, TYPE_CODE_NULL)
TENSOR_TYPE_CODES = (TYPE_CODE_DLTENSOR, TYPE_CODE_NDARRAY)

METADATA_VERSION = 1
MAX_NAME = 119
"""Longest name that the C runtime's buffers hold (TVM_CRT_MAX_STRLEN_FUNCTION_NAME - 1)."""
MAX_PACKED_ARGS = 10
"""Most arguments that the C runtime passes (TVM_CRT_MAX_ARGS); it aborts at more."""
MAX_FUNCTIONS = 0x7FFF
"""Most functions that the C runtime can address: one of the 16 bits of a function handle marks it
as valid."""

WORKSPACE_POOL = "workspace"
"""Field of ``struct tvmgen_<m>_workspace_pools``, and the name of the pool in the metadata."""

IMAGE_POOL = "device_image"
"""The same for the buffer into which device programs are inflated."""

STATE_POOL = "state"
"""The same for the model's state, which it keeps between runs."""

_DLDATATYPE = {
    DType.BOOL: (1, 1), DType.INT8: (0, 8), DType.UINT8: (1, 8), DType.INT16: (0, 16),
    DType.UINT16: (1, 16), DType.INT32: (0, 32), DType.UINT32: (1, 32), DType.INT64: (0, 64),
    DType.FLOAT16: (2, 16), DType.FLOAT32: (2, 32), DType.FLOAT64: (2, 64),
}


def dl_data_type(dtype: DType) -> tuple[int, int, int]:
    """Returns the ``DLDataType`` {code, bits, lanes} of an element type; bool is one unsigned bit.
    """
    code, bits = _DLDATATYPE[dtype]
    return code, bits, 1


def metadata_name(interface: Interface) -> str:
    """Returns the name of an input or output in ``TVMTensorInfo``: its field in the C interface."""
    return interface.field


def takes_workspace(artifact: Artifact) -> bool:
    """Returns whether ``run`` has a workspace argument: the caller owns it, and there is one."""
    return artifact.workspace_caller and artifact.workspace_total > 0


def workspaces(artifact: Artifact) -> tuple[tuple[int, str, int], ...]:
    """Returns the non-empty pools of the workspace: number, suffix of their names, bytes.

    The first is called "workspace", those in other memories "workspace_<memory>".
    """
    pools = [(0, "", artifact.workspace_size)]
    pools += [(n, f"_{p.memory}", p.size) for n, p in enumerate(artifact.spilled, 1)]
    return tuple(pool for pool in pools if pool[2])


def takes_state(artifact: Artifact) -> bool:
    """Returns whether ``run`` takes the state as an argument: the caller owns it, and there is one.
    """
    return artifact.workspace_caller and artifact.state_size > 0


def takes_buffer(artifact: Artifact) -> bool:
    """Returns whether ``run`` takes the buffer for programs: the caller owns it, and there is one.
    """
    return artifact.workspace_caller and artifact.inflated_size > 0


def caller_pools(artifact: Artifact) -> tuple[tuple[str, int], ...]:
    """Returns the memory that the caller provides: name and bytes of each pool, in order."""
    pools = []
    if takes_workspace(artifact):
        pools += [(WORKSPACE_POOL + end, size) for _, end, size in workspaces(artifact)]
    if takes_buffer(artifact):
        pools.append((IMAGE_POOL, artifact.inflated_size))
    if takes_state(artifact):
        pools.append((STATE_POOL, artifact.state_size))
    return tuple(pools)


def takes_io(artifact: Artifact) -> bool:
    """Returns whether ``run`` takes inputs and outputs: they don't lie in the workspace."""
    return not artifact.io_in_workspace


def io_maps(artifact: Artifact) -> tuple[tuple[str, str, tuple[Interface, ...]], ...]:
    """Returns the functions that return the addresses of inputs and outputs in the workspace:
    symbol, side, tensors.

    ``struct tvmgen_<m>_inputs tvmgen_<m>_map_inputs([workspace_pools *])``, by value as in
    microTVM; ``run`` then takes neither. All members are NULL if the workspace is NULL.
    """
    if takes_io(artifact):
        return ()
    sides = (("inputs", artifact.inputs), ("outputs", artifact.outputs))
    return tuple((f"{artifact.prefix}_map_{side}", side, tensors) for side, tensors in sides)


def packed_tensors(artifact: Artifact) -> int:
    """Returns the number of the packed run function's arguments that are tensors: the first ones.
    """
    return len(artifact.inputs) + len(artifact.outputs) + len(caller_pools(artifact))


def packed_arity(artifact: Artifact) -> int:
    """Returns the number of arguments of the packed run function."""
    return packed_tensors(artifact) + len(artifact.devices)


def packed_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the packed version of ``tvmgen_<m>_run``, which the registry refers to.
    """
    name = f"{artifact.prefix}_run"
    symbols = [entry.symbol for entry in artifact.registry if entry.name == name]
    return symbols[0] if symbols else f"{name}_packed"


def reset_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the packed version of ``tvmgen_<m>_reset``, whose argument is the
    caller's state if the caller owns it."""
    return f"{artifact.prefix}_reset_packed"


def check_arguments(artifact: Artifact) -> None:
    """Raises CrtExportError when the packed function takes more than callers by name can pass."""
    count = packed_arity(artifact)
    if count > MAX_PACKED_ARGS:
        parts = (
            ("inputs", len(artifact.inputs)), ("outputs", len(artifact.outputs)),
            ("workspaces and state", len(caller_pools(artifact))),
            ("device contexts", count - packed_tensors(artifact)),
        )
        told = ", ".join(f"{number} {what}" for what, number in parts if number)
        raise CrtExportError(
            f"{artifact.prefix}_run has {count} arguments ({told}); TVM's C runtime passes at most "
            f"{MAX_PACKED_ARGS} to a function of the registry, and aborts at more",
            location=artifact.module,
            hint="leave the registry out with --no-system-lib and call the model through its "
            "header, which has no such limit",
        )


def registry_names(entries: Iterable[RegistryEntry], *, little_endian: bool) -> bytes:
    """Returns ``TVMFuncRegistry.names``: a 16-bit count, NUL-terminated names, and a NUL that ends
    them.

    Raises CrtExportError for names that a lookup could never find or that don't fit.
    """
    entries = tuple(entries)
    if len(entries) > MAX_FUNCTIONS:
        raise CrtExportError(
            f"the function registry would have {len(entries):,} functions, at most "
            f"{MAX_FUNCTIONS:,} are possible",
            hint="export the models in several packages, all but one with --no-system-lib",
        )
    blob = len(entries).to_bytes(2, "little" if little_endian else "big")
    seen: set[bytes] = set()
    for entry in entries:
        name = entry.name.encode("utf-8")
        if not name or b"\0" in name or len(name) > MAX_NAME or name in seen:
            raise CrtExportError(
                "a name in the function registry must be unique, not empty, without NUL and at "
                f"most {MAX_NAME} bytes long",
                location=entry.name,
            )
        seen.add(name)
        blob += name + b"\0"
    return blob + b"\0"


def row_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the internal function that runs for each row of an input that is passed
    row by row."""
    return f"{artifact.prefix}_row"


def rest_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the internal function that runs after the last row."""
    return f"{artifact.prefix}_rest"


def feed_symbols(artifact: Artifact) -> tuple[str, str, str]:
    """Returns the symbols of the functions that take an input row by row: ``tvmgen_<m>_begin``,
    ``_feed`` and ``_finish``."""
    return f"{artifact.prefix}_begin", f"{artifact.prefix}_feed", f"{artifact.prefix}_finish"
