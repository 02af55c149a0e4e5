"""Prints the functions that return the addresses of inputs and outputs in the workspace.

They return a struct of pointers by value. LLVM must be told whether the calling convention returns
it in registers or through memory of the caller's.
"""

from __future__ import annotations

from msgspec import Struct

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact, Interface, WorkspaceArg
from crtexport.backends.llvm.entry import Checks, pool_position, workspace_symbol
from crtexport.backends.llvm.types import ModuleText, value_type
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

# Pointers that a struct may have to be returned in registers, by how triples begin: AAPCS64 and
# System V x86-64 (16 bytes), RISC-V (two registers), AAPCS (one word), System V i386 (never).
_IN_REGISTERS = (
    ("aarch64", 2), ("arm64", 2), ("x86_64", 2), ("riscv", 2), ("arm", 1), ("thumb", 1),
    ("i386", 0), ("i486", 0), ("i586", 0), ("i686", 0),
)


def print_maps(artifact: Artifact, module: ModuleText) -> list[str]:
    """Prints ``tvmgen_<m>_map_inputs`` and ``_map_outputs``; nothing where ``run`` takes the
    tensors.

    Raises CrtExportError for a target whose way to return structs isn't known here.
    """
    return [
        _print_map(artifact, module, symbol, tensors)
        for symbol, _, tensors in abi.io_maps(artifact)
    ]


def _in_registers(target: Target) -> int:
    for start, count in _IN_REGISTERS:
        if target.triple.startswith(start):
            return count
    raise CrtExportError(
        "how this processor returns structs isn't known, which functions for inputs and outputs "
        "in the workspace need",
        location=target.triple, hint="export with --emit c, or with --io caller",
    )


def _print_map(
    artifact: Artifact, module: ModuleText, symbol: str, tensors: tuple[Interface, ...]
) -> str:
    count = max(len(tensors), 1)
    struct = f"{{ {', '.join(['ptr'] * count)} }}"
    in_memory = count > _in_registers(module.target)
    pools = "ptr noundef readonly captures(none) %workspace_pools"
    params = [pools] if abi.takes_workspace(artifact) else []
    if in_memory:
        align = module.target.pointer_bits // 8
        params = [f"ptr dead_on_unwind noalias writable sret({struct}) align {align} %result",
                  *params]
    checks = Checks()
    bases = _bases(artifact, checks)
    index = value_type(Scalar.INDEX, module.target)
    pointers = [
        _pointer(checks, bases, tensor.place or WorkspaceArg(0), index) for tensor in tensors
    ] or ["null"]
    result = _stored(checks, struct, pointers) if in_memory else _gathered(checks, struct, pointers)
    kind = "void" if in_memory else struct
    return "\n".join([
        f'define {kind} @{symbol}({", ".join(params)}) #0 section ".text.{symbol}" {{',
        *checks.lines, result, "}", "",
    ])


class _Bases(Struct, frozen=True):
    """The address of each pool; ``absent``: a condition that the caller left one out, None if none
    can be."""

    pools: dict[int, str]
    absent: str | None = None


def _bases(artifact: Artifact, checks: Checks) -> _Bases:
    if not abi.takes_workspace(artifact):
        return _Bases({
            number: f"@{workspace_symbol(artifact, number)}"
            for number, _, _ in abi.workspaces(artifact)
        })
    needed = {t.place.pool for t in (*artifact.inputs, *artifact.outputs) if t.place is not None}
    checks.lines += ["  br label %start", "start:"]
    nothing = checks.assign("icmp eq ptr %workspace_pools, null")
    checks.lines += [f"  br i1 {nothing}, label %known, label %given", "given:"]
    loaded, missing = {}, "false"
    for number in sorted(needed):
        position = pool_position(artifact, number)
        loaded[number] = checks.load("ptr", "%workspace_pools", "ptr", position)
        null = checks.assign(f"icmp eq ptr {loaded[number]}, null")
        missing = checks.assign(f"or i1 {missing}, {null}")
    checks.lines += ["  br label %known", "known:"]
    pools = {
        number: checks.assign(f"phi ptr [ null, %start ], [ {pool}, %given ]")
        for number, pool in loaded.items()
    }
    absent = checks.assign(f"phi i1 [ true, %start ], [ {missing}, %given ]")
    return _Bases(pools, absent)


def _pointer(checks: Checks, bases: _Bases, place: WorkspaceArg, index: str) -> str:
    """Returns the address of a tensor; null where a pool is missing."""
    base = bases.pools[place.pool]
    address = checks.assign(f"getelementptr i8, ptr {base}, {index} {place.offset}")
    if bases.absent is None:
        return address
    return checks.assign(f"select i1 {bases.absent}, ptr null, ptr {address}")


def _stored(checks: Checks, struct: str, pointers: list[str]) -> str:
    for position, pointer in enumerate(pointers):
        member = checks.assign(
            f"getelementptr inbounds {struct}, ptr %result, i32 0, i32 {position}"
        )
        checks.lines.append(f"  store ptr {pointer}, ptr {member}")
    return "  ret void"


def _gathered(checks: Checks, struct: str, pointers: list[str]) -> str:
    value = "poison"
    for position, pointer in enumerate(pointers):
        value = checks.assign(f"insertvalue {struct} {value}, ptr {pointer}, {position}")
    return f"  ret {struct} {value}"
