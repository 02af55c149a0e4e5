"""Prints the constant tables that TVM's runtimes read: metadata and function registry."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact
from crtexport.backends.llvm.entry import PACKED_PARAMETERS, Checks
from crtexport.backends.llvm.types import ModuleText, bytes_literal
from crtexport.ir.types import DType

_TENSOR_INFO = "{ ptr, ptr, i64, { i8, i8, i16 } }"
"""``TVMTensorInfo``: name, shape, num_shape, dtype."""
_METADATA = "{ i64, ptr, i64, ptr, i64, ptr, i64, ptr, i64, ptr }"
"""``TVMMetadata``: version, then array and length of inputs, outputs, workspace and constant pools,
and mod_name."""
_PACKED_TYPES = "ptr, ptr, i32, ptr, ptr, ptr"


class Tables:
    """Constant globals of one module, in the order in which they are needed."""

    def __init__(self, module: ModuleText) -> None:
        self.lines: list[str] = []
        self._static = module.target.reloc == "static"

    def constant(
        self, symbol: str, type_: str, value: str, *, addresses: bool = False,
        linkage: str = "internal unnamed_addr",
    ) -> str:
        """Returns a constant; ``addresses``: it holds some, and so needs relocations.

        In position-independent code, such a table is where the loader may relocate it.
        """
        place = ".rodata" if self._static or not addresses else ".data.rel.ro"
        self.lines.append(
            f"@{symbol} = {linkage} constant {type_} {value}, "
            f'section "{place}.{symbol}"'
        )
        return f"@{symbol}"

    def string(self, symbol: str, text: str) -> str:
        data = text.encode("utf-8") + b"\0"
        return self.constant(symbol, f"[{len(data)} x i8]", bytes_literal(data))

    def tensors(self, symbol: str, tensors: Sequence[tuple[str, tuple[int, ...], DType]]) -> str:
        """Returns array and length of ``TVMTensorInfo`` for (name, shape, dtype) each, as two
        operands."""
        infos = []
        for position, (name, shape, dtype) in enumerate(tensors):
            own = f"{symbol}.{position}"
            dims = "null"
            if shape:
                dims = self.constant(
                    f"{own}.shape", f"[{len(shape)} x i64]",
                    "[" + ", ".join(f"i64 {extent}" for extent in shape) + "]",
                )
            code, bits, lanes = abi.dl_data_type(dtype)
            infos.append(
                f"{_TENSOR_INFO} {{ ptr {self.string(f'{own}.name', name)}, ptr {dims}, "
                f"i64 {len(shape)}, {{ i8, i8, i16 }} {{ i8 {code}, i8 {bits}, i16 {lanes} }} }}"
            )
        array = "null"
        if infos:
            array = self.constant(
                symbol, f"[{len(infos)} x {_TENSOR_INFO}]", f"[{', '.join(infos)}]", addresses=True
            )
        return f"ptr {array}, i64 {len(infos)}"


def print_metadata(artifact: Artifact, module: ModuleText, name: str) -> str:
    """Returns the module with ``TVMMetadata`` and the packed function that returns its address."""
    tables = Tables(module)
    own = f"{artifact.prefix}.metadata"
    sides = {
        side: tables.tensors(
            f"{own}.{side}", [(abi.metadata_name(i), i.type.shape, i.type.dtype) for i in tensors]
        )
        for side, tensors in (("inputs", artifact.inputs), ("outputs", artifact.outputs))
    }
    pools = [(name, (size,), DType.UINT8) for name, size in abi.caller_pools(artifact)]
    workspace = tables.tensors(f"{own}.pools", pools)
    mod_name = tables.string(f"{own}.name", artifact.prefix)
    metadata = tables.constant(
        own, _METADATA,
        f"{{ i64 {abi.METADATA_VERSION}, {sides['inputs']}, {sides['outputs']}, {workspace}, "
        f"ptr null, i64 0, ptr {mod_name} }}",
        addresses=True,
    )
    symbol = f"{artifact.prefix}_get_c_metadata"
    checks = Checks()
    checks.fail_if_null("%ret_value")
    checks.fail_if_null("%ret_type_code")
    return module.text(name, artifact.header_comment, [
        *tables.lines,
        "",
        f'define i32 @{symbol}({PACKED_PARAMETERS}) #0 section ".text.{symbol}" {{',
        *checks.lines,
        f"  store ptr {metadata}, ptr %ret_value",
        f"  store i32 {abi.TYPE_CODE_OPAQUE_HANDLE}, ptr %ret_type_code",
        f"  ret i32 {abi.OK}",
        *checks.exits(),
        "}",
    ])


def print_registry(artifact: Artifact, module: ModuleText, name: str) -> str:
    """Returns the module with ``TVMFuncRegistry``, ``TVMModule`` and ``TVMSystemLibEntryPoint``."""
    tables = Tables(module)
    own = f"{artifact.prefix}.registry"
    entries = artifact.registered
    blob = abi.registry_names(entries, little_endian=module.target.little_endian)
    # The count is read with memcpy, so the blob needs no alignment.
    names = tables.constant(f"{own}.names", f"[{len(blob)} x i8]", bytes_literal(blob))
    for entry in entries:
        module.declare(f"declare i32 @{entry.symbol}({_PACKED_TYPES})")
    functions = ", ".join(f"ptr @{entry.symbol}" for entry in entries)
    table = "null"
    if entries:
        table = tables.constant(
            f"{own}.functions", f"[{len(entries)} x ptr]", f"[{functions}]",
            addresses=True,
        )
    registry = tables.constant(
        own, "{ ptr, ptr }", f"{{ ptr {names}, ptr {table} }}", addresses=True
    )
    system = tables.constant(
        artifact.common.system_lib or f"{artifact.prefix}.module", "{ ptr }",
        f"{{ ptr {registry} }}", addresses=True,
        linkage="hidden" if artifact.common.system_lib else "internal unnamed_addr",
    )
    symbol = "TVMSystemLibEntryPoint"
    return module.text(name, artifact.header_comment, [
        *tables.lines,
        "",
        f'define ptr @{symbol}() #0 section ".text.{symbol}" {{',
        f"  ret ptr {system}",
        "}",
    ])
