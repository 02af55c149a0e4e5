"""Prints the tables that TVM's runtime reads: the tensors of a model, and the function registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact, RegistryEntry
from crtexport.backends.c.header import banner
from crtexport.backends.c.literals import c_string
from crtexport.backends.c.prototypes import packed_prototype
from crtexport.ir.types import DType

_Tensor = tuple[str, tuple[int, ...], DType]

READ_ONLY = "Re-entrant: only constants are read."

_INCLUDES = "#include <stddef.h>\n#include <stdint.h>"


def emit_metadata(artifact: Artifact) -> str:
    """Returns ``<module>_lib1.c``: the names, shapes and types of inputs and outputs."""
    symbol = f"{artifact.prefix}_get_c_metadata"
    groups: dict[str, list[_Tensor]] = {
        side: [(abi.metadata_name(t), t.type.shape, t.type.dtype) for t in tensors]
        for side, tensors in (("inputs", artifact.inputs), ("outputs", artifact.outputs))
    }
    groups["workspace_pools"] = [
        (name, (size,), DType.UINT8) for name, size in abi.caller_pools(artifact)
    ]
    sections = (
        banner(
            artifact, f"{artifact.module}_lib1.c: what the model's tensors look like", READ_ONLY
        ),
        _INCLUDES,
        "#include <tvm/runtime/c_backend_api.h>\n#include <tvm/runtime/metadata_types.h>",
        *(text for group, tensors in groups.items() for text in _tensor_infos(group, tensors)),
        _metadata({group: len(tensors) for group, tensors in groups.items()}, artifact.prefix),
        f"{packed_prototype(symbol)};",
        f"""\
/* What the model's tensors are called and look like: a const struct TVMMetadata *. */
{packed_prototype(symbol)}
{{
    (void)args;
    (void)type_codes;
    (void)num_args;
    (void)resource_handle;
    if ((ret_value == NULL) || (ret_type_code == NULL)) {{
        return {abi.ERROR_NULL};
    }}
    ret_value->v_handle = (void *)(uintptr_t)&metadata;
    *ret_type_code = kTVMOpaqueHandle;
    return 0;
}}""",
    )
    return "\n\n".join(sections) + "\n"


def _tensor_infos(group: str, tensors: Sequence[_Tensor]) -> Iterator[str]:
    rows = []
    for number, (name, shape, dtype) in enumerate(tensors):
        symbol = f"{group}_{number}_shape" if shape else "NULL"
        if shape:
            sizes = ", ".join(map(str, shape))
            yield f"static const int64_t {symbol}[{len(shape)}] = {{{sizes}}};"
        type_ = ", ".join(map(str, abi.dl_data_type(dtype)))
        rows.append(f"    {{{c_string(name)}, {symbol}, {len(shape)}, {{{type_}}}}},")
    if rows:
        head = f"static const struct TVMTensorInfo {group}[{len(rows)}] = {{"
        yield "\n".join([head, *rows, "};"])


def _metadata(sizes: dict[str, int], name: str) -> str:
    rows = [f"    {abi.METADATA_VERSION}, /* version */"]
    for group, size in (*sizes.items(), ("constant_pools", 0)):
        rows += [f"    {group if size else 'NULL'}, /* {group} */", f"    {size},"]
    rows.append(f"    {c_string(name)}, /* mod_name */")
    return "\n".join(["static const struct TVMMetadata metadata = {", *rows, "};"])


def emit_registry(entries: Sequence[RegistryEntry], opening: str, system_lib: str = "") -> str:
    """Returns a file with the function registry of one or of several models.

    ``opening`` is the comment at its head, ``system_lib`` what its ``TVMModule`` is called for the
    models' files, if they name it. Raises CrtExportError for names that can't be registered.
    """
    abi.registry_names(entries, little_endian=True)  # refuses what can't be looked up
    symbols = [entry.symbol for entry in entries]
    sections = (
        opening,
        _INCLUDES,
        "#include <tvm/runtime/c_backend_api.h>\n#include <tvm/runtime/crt/module.h>",
        *(f"{packed_prototype(symbol)};" for symbol in dict.fromkeys(symbols)),
        "\n".join([
            f"static const TVMBackendPackedCFunc functions[{len(symbols)}] = {{",
            *(f"    {symbol}," for symbol in symbols), "};",
        ]),
        _names([entry.name for entry in entries]),
        "static const TVMFuncRegistry registry = {(const char *)&names, functions};",
        _system_lib(system_lib),
        f"""\
const TVMModule *TVMSystemLibEntryPoint(void)
{{
    return &{system_lib or "system_lib"};
}}""",
    )
    return "\n\n".join(sections) + "\n"


def _names(names: Sequence[str]) -> str:
    fields = [
        f"    char name_{number}[{len(name.encode()) + 1}];" for number, name in enumerate(names)
    ]
    return "\n".join([
        "/* The number of functions in the target's byte order, their names, and an empty name. */",
        "static const struct {", "    uint16_t count;", *fields, "    char end[1];", "} names = {",
        f"    {len(names)},", *(f"    {c_string(name)}," for name in names), '    "",', "};",
    ])


def _system_lib(symbol: str) -> str:
    if not symbol:
        return "static const TVMModule system_lib = {&registry};"
    return f"""\
#if defined(__GNUC__) && defined(__ELF__)
__attribute__((visibility("hidden")))
#endif
extern const TVMModule {symbol}; /* the models' files name it, see there */
const TVMModule {symbol} = {{&registry}};"""
