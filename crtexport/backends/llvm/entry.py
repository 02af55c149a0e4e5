"""Prints a model's entry points: the C interface and the packed function, around one ``main``."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.artifact import abi
from crtexport.artifact.contexts import called_externals
from crtexport.artifact.model import Artifact, Interface, SharedWorkspace, WorkspaceArg
from crtexport.backends.llvm.types import ModuleText, value_type
from crtexport.kir.language import Scalar

PACKED_PARAMETERS = (
    "ptr noundef readonly captures(none) %args, ptr noundef readonly captures(none) %type_codes, "
    "i32 noundef %num_args, ptr noundef %ret_value, ptr noundef %ret_type_code, "
    "ptr noundef %resource_handle"
)
DL_TENSOR = "{ ptr, i32, i32, i32, { i8, i8, i16 }, ptr, ptr, i64 }"
"""``DLTensor``: data, device (type, id), ndim, dtype, shape, strides, byte_offset."""
_BYTE_OFFSET = 7


def main_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the function behind both interfaces; its dot makes it differ from all
    identifiers of C."""
    return f"{artifact.prefix}.main"


def main_arity(artifact: Artifact) -> int:
    """Returns the number of its parameters, all pointers: inputs and outputs if ``run`` takes them,
    pools."""
    io = len(artifact.inputs) + len(artifact.outputs) if abi.takes_io(artifact) else 0
    return io + len(abi.caller_pools(artifact))


def workspace_symbol(artifact: Artifact, pool: int = 0) -> str:
    """Returns the symbol of a workspace pool that the module owns, or that all modules of its
    package share."""
    ends = {number: end for number, end, _ in abi.workspaces(artifact)}
    if artifact.common.workspace is not None:
        return shared_workspace_symbol(artifact.common.workspace, ends.get(pool, ""))
    return f"{artifact.prefix}.workspace{ends.get(pool, '')}"


def shared_workspace_symbol(workspace: SharedWorkspace, end: str) -> str:
    """Returns the symbol of a pool of a package's workspace."""
    return f"{workspace.prefix}.shared_workspace{end}"


def pool_position(artifact: Artifact, pool: int) -> int:
    """Returns the position of a pool of the workspace among those of the caller."""
    return [number for number, _, _ in abi.workspaces(artifact)].index(pool)


def state_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the state that the module keeps between runs."""
    return f"{artifact.prefix}.state"


class Checks:
    """Straight-line code that returns an error code when a check fails."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._codes: dict[int, None] = {}
        self._fresh = 0

    def assign(self, instruction: str) -> str:
        """Returns a fresh name, defined by ``instruction``."""
        name = f"%v{self._fresh}"
        self._fresh += 1
        self.lines.append(f"  {name} = {instruction}")
        return name

    def load(self, type_: str, base: str, struct: str, position: int) -> str:
        """Loads element ``position`` of the array of ``struct`` at ``base``."""
        address = self.assign(f"getelementptr inbounds {struct}, ptr {base}, i32 {position}")
        return self.assign(f"load {type_}, ptr {address}")

    def fail_if(self, condition: str, code: int) -> None:
        """Emits a check: the function returns ``code`` if the instruction ``condition`` is true."""
        bad = self.assign(condition)
        self._codes.setdefault(code)
        label = f"ok{self._fresh}"
        self.lines += [f"  br i1 {bad}, label %fail{-code}, label %{label}", f"{label}:"]

    def fail_if_null(self, pointer: str) -> None:
        self.fail_if(f"icmp eq ptr {pointer}, null", abi.ERROR_NULL)

    def exits(self) -> list[str]:
        """Returns the blocks that failures branch to."""
        return [line for code in self._codes for line in (f"fail{-code}:", f"  ret i32 {code}")]


def print_run(artifact: Artifact) -> str:
    """Returns ``int32_t tvmgen_<m>_run([inputs *, outputs *][, workspace_pools *])``."""
    structs = []
    if abi.takes_io(artifact):
        structs = [("inputs", len(artifact.inputs)), ("outputs", len(artifact.outputs))]
    pools = abi.caller_pools(artifact)
    if pools:
        structs.append(("workspace_pools", len(pools)))
    checks = Checks()
    pointers: list[str] = []
    for struct, count in structs:
        if count:
            checks.fail_if_null(f"%{struct}")
        for position in range(count):
            pointers.append(checks.load("ptr", f"%{struct}", "ptr", position))
            checks.fail_if_null(pointers[-1])
    if artifact.devices:
        structs.append(("devices", len(artifact.devices)))
        checks.fail_if_null("%devices")
        pointers += [  # which may be null
            checks.load("ptr", "%devices", "ptr", number) for number in range(len(artifact.devices))
        ]
    params = ", ".join(f"ptr noundef readonly captures(none) %{struct}" for struct, _ in structs)
    return _entry(artifact, f"{artifact.prefix}_run", params, checks, pointers)


def print_reset(artifact: Artifact, module: ModuleText) -> str:
    """Prints ``int32_t tvmgen_<m>_reset([workspace_pools *])``, which zeroes the state."""
    checks, params, state = Checks(), "", f"@{state_symbol(artifact)}"
    if abi.takes_state(artifact):
        params = "ptr noundef readonly captures(none) %workspace_pools"
        checks.fail_if_null("%workspace_pools")
        state = checks.load("ptr", "%workspace_pools", "ptr", len(abi.caller_pools(artifact)) - 1)
        checks.fail_if_null(state)
    return _zeroing(artifact, module, f"{artifact.prefix}_reset", params, checks, state)


def print_packed_reset(artifact: Artifact, module: ModuleText) -> str:
    """Returns ``tvmgen_<m>_reset_packed``: the same in the packed convention."""
    checks, state = Checks(), f"@{state_symbol(artifact)}"
    own = abi.takes_state(artifact)
    checks.fail_if(f"icmp ne i32 %num_args, {int(own)}", abi.ERROR_ARGUMENTS)
    if own:
        checks.fail_if_null("%args")
        checks.fail_if_null("%type_codes")
        _check_code(checks, 0, abi.TENSOR_TYPE_CODES)
        state = _tensor_data(checks, 0, module)
    symbol = abi.reset_symbol(artifact)
    return _zeroing(artifact, module, symbol, PACKED_PARAMETERS, checks, state)


def _zeroing(
    artifact: Artifact, module: ModuleText, symbol: str, params: str, checks: Checks, state: str
) -> str:
    index = value_type(Scalar.INDEX, module.target)
    module.declare(f"declare void @llvm.memset.p0.{index}(ptr, i8, {index}, i1)")
    zeroed = f"ptr {state}, i8 0, {index} {artifact.state_size}, i1 false"
    return "\n".join([
        f'define i32 @{symbol}({params}) #0 section ".text.{symbol}" {{',
        *checks.lines,
        f"  call void @llvm.memset.p0.{index}({zeroed})",
        f"  ret i32 {abi.OK}",
        *checks.exits(),
        "}",
        "",
    ])


def _check_code(checks: Checks, position: int, codes: Sequence[int]) -> None:
    """Emits a check that the type code of argument ``position`` is one of ``codes``."""
    code = checks.load("i32", "%type_codes", "i32", position)
    wrong = [checks.assign(f"icmp ne i32 {code}, {good}") for good in codes]
    checks.fail_if(f"and i1 {wrong[0]}, {wrong[1]}", abi.ERROR_ARGUMENTS)


def print_packed(artifact: Artifact, module: ModuleText) -> str:
    """Returns ``tvmgen_<m>_run_packed``: the same with tensors, in the packed convention."""
    checks = Checks()
    arity = abi.packed_arity(artifact)
    checks.fail_if(f"icmp ne i32 %num_args, {arity}", abi.ERROR_ARGUMENTS)
    checks.fail_if_null("%args")
    checks.fail_if_null("%type_codes")
    given = abi.packed_tensors(artifact)
    for position in range(arity):
        codes = abi.TENSOR_TYPE_CODES if position < given else abi.CONTEXT_TYPE_CODES
        _check_code(checks, position, codes)
    pointers = [_tensor_data(checks, position, module) for position in range(given)]
    pointers += [_context(checks, position) for position in range(given, arity)]
    tensors = (*artifact.inputs, *artifact.outputs)
    if abi.takes_io(artifact):
        return _entry(artifact, abi.packed_symbol(artifact), PACKED_PARAMETERS, checks, pointers)
    theirs, pools = pointers[: len(tensors)], pointers[len(tensors) :]
    own = [_inside(artifact, checks, tensor, pools, module) for tensor in tensors]
    index = value_type(Scalar.INDEX, module.target)
    module.declare(f"declare void @llvm.memmove.p0.p0.{index}(ptr, ptr, {index}, i1)")
    copies = [
        f"  call void @llvm.memmove.p0.p0.{index}(ptr {to}, ptr {source}, "
        f"{index} {tensor.type.nbytes}, i1 false)"
        for tensor, to, source in (
            (t, own[i], theirs[i]) if i < len(artifact.inputs) else (t, theirs[i], own[i])
            for i, t in enumerate(tensors)
        )
    ]
    checks.lines += copies[: len(artifact.inputs)]
    return _entry(
        artifact, abi.packed_symbol(artifact), PACKED_PARAMETERS, checks, pools,
        copies[len(artifact.inputs) :],
    )


def _inside(
    artifact: Artifact, checks: Checks, tensor: Interface, pools: list[str], module: ModuleText
) -> str:
    """Returns the address of an input or output in the workspace, as an operand."""
    index = value_type(Scalar.INDEX, module.target)
    place = tensor.place if tensor.place is not None else WorkspaceArg(0)
    base, offset = f"@{workspace_symbol(artifact, place.pool)}", place.offset
    if abi.takes_workspace(artifact):
        base = pools[pool_position(artifact, place.pool)]
    return checks.assign(f"getelementptr inbounds i8, ptr {base}, {index} {offset}")


def _context(checks: Checks, position: int) -> str:
    """Returns the device context in argument ``position``, null if its type code says so."""
    code = checks.load("i32", "%type_codes", "i32", position)
    none = checks.assign(f"icmp eq i32 {code}, {abi.TYPE_CODE_NULL}")
    context = checks.load("ptr", "%args", "i64", position)
    return checks.assign(f"select i1 {none}, ptr null, ptr {context}")


def _tensor_data(checks: Checks, position: int, module: ModuleText) -> str:
    """Returns the address of the first element of the tensor in argument ``position``."""
    tensor = checks.load("ptr", "%args", "i64", position)  # TVMValue: a union of 8 bytes
    checks.fail_if_null(tensor)
    data = checks.assign(f"load ptr, ptr {tensor}")
    checks.fail_if_null(data)
    field = checks.assign(
        f"getelementptr inbounds {DL_TENSOR}, ptr {tensor}, i32 0, i32 {_BYTE_OFFSET}"
    )
    offset = checks.assign(f"load i64, ptr {field}")
    if module.target.pointer_bits < 64:
        offset = checks.assign(f"trunc i64 {offset} to i{module.target.pointer_bits}")
    index = value_type(Scalar.INDEX, module.target)
    return checks.assign(f"getelementptr i8, ptr {data}, {index} {offset}")


def _entry(
    artifact: Artifact, symbol: str, params: str, checks: Checks, pointers: list[str],
    afterwards: Sequence[str] = (),
) -> str:
    operands = ", ".join(f"ptr noundef {p}" for p in pointers)
    call = [f"  call void @{main_symbol(artifact)}({operands})"]
    if called_externals(artifact):
        call = [
            f"  %status = call i32 @{main_symbol(artifact)}({operands})",
            "  %bad = icmp ne i32 %status, 0",
            "  br i1 %bad, label %failed, label %ran", "failed:", "  ret i32 %status", "ran:",
        ]
    return "\n".join([
        f'define i32 @{symbol}({params}) #0 section ".text.{symbol}" {{',
        *checks.lines,
        *call,
        *afterwards,
        f"  ret i32 {abi.OK}",
        *checks.exits(),
        "}",
        "",
    ])
