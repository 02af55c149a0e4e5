"""Prints an artifact as C99 source files.

``<module>_lib0.c``: constants, kernels, workspace, ``tvmgen_<module>_run`` and its packed form.
``<module>_lib1.c``: ``tvmgen_<module>_get_c_metadata``, which TVM's AOT executor asks first.
``<module>_lib2.c``: the function registry and ``TVMSystemLibEntryPoint``, if the artifact has one.

All tables are constant and initialised by the linker; the only writable memory is the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from crtexport.artifact import abi
from crtexport.artifact.contexts import (
    DECODER,
    all_hooks,
    called_externals,
    context_fields,
    images_symbol,
    launched_symbol,
)
from crtexport.artifact.model import (
    Artifact,
    Constant,
    Function,
    Interface,
    RegistryEntry,
    WorkspaceArg,
    every_call,
    every_condition,
)
from crtexport.artifact.symbols import macro_stems
from crtexport.backends import c_calls
from crtexport.backends.c_contexts import Contexts
from crtexport.backends.c_header import (
    banner,
    declarations,
    map_prototype,
    reset_prototype,
    run_prototype,
)
from crtexport.backends.c_helpers import SPECIAL, select_helpers
from crtexport.backends.c_kernel import declare_kernel, print_kernel
from crtexport.backends.c_literals import (
    STORAGE,
    IntBits,
    array_literals,
    block_comment,
    c_string,
    needs_special,
    wrapped,
)
from crtexport.backends.constants import table_symbol
from crtexport.errors import CrtExportError
from crtexport.ir.types import DType
from crtexport.resources import environment

MAX_CONSTANTS = 16 << 20
"""Bytes of constants beyond which C text (four to seven characters a byte) stops being sensible."""


def emit_c(
    artifact: Artifact, *, linked: bool = False, int_bits: IntBits = 32
) -> dict[str, str]:
    """The C files of one model: base name → text, sorted by name.

    ``linked``: the constants are in an object, see :mod:`crtexport.backends.constants`.
    ``int_bits``: the width of ``int``; where that is 16, pointers are taken to be no wider. Raises
    CrtExportError when names clash, when the artifact contradicts itself, or when it is too large
    for such pointers.
    """
    module = artifact.module
    if int_bits < 32:
        from crtexport.artifact.narrow import check_narrow  # noqa: PLC0415  (rarely wanted)

        check_narrow(artifact)
    files = {
        f"{module}_lib0.c": _emit_model(artifact, linked, int_bits),
        f"{module}_lib1.c": _emit_metadata(artifact),
    }
    if artifact.system_lib:
        files[f"{module}_lib2.c"] = emit_registry(
            artifact.registered,
            banner(artifact, f"{module}_lib2.c: {_registry_purpose(artifact)}"),
            artifact.common.system_lib,
        )
    return files


def _registry_purpose(artifact: Artifact) -> str:
    """What the file with the registry is for."""
    return f"the functions of {'all modules' if artifact.common.registry else 'the module'}"


def packed_prototype(symbol: str) -> str:
    """The declaration of a packed function, without its semicolon."""
    return (
        f"int {symbol}(\n"
        "    TVMValue *args, int *type_codes, int num_args, TVMValue *ret_value,\n"
        "    int *ret_type_code, void *resource_handle)"
    )


def emit_registry(
    entries: Sequence[RegistryEntry], opening: str, system_lib: str = ""
) -> str:
    """A file with the function registry of one or of several models.

    ``opening`` is the comment at its head, ``system_lib`` what its ``TVMModule`` is called for the
    models' files, if they name it. Raises CrtExportError for names that can't be
    registered.
    """
    abi.registry_names(entries, little_endian=True)  # refuses what can't be looked up
    names = [
        {"literal": c_string(entry.name), "size": len(entry.name.encode()) + 1}
        for entry in entries
    ]
    symbols = [entry.symbol for entry in entries]
    return environment().get_template("model/lib2.c.j2").render(
        banner=opening,
        prototypes=[packed_prototype(symbol) for symbol in dict.fromkeys(symbols)],
        symbols=symbols,
        names=names,
        system_lib=system_lib,
    )


# ---- lib0: the model


class _ConstantText(Struct, frozen=True):
    declared: str
    linkage: str
    align: int
    comment: str
    values: str


def _constant(constant: Constant, linkage: str) -> _ConstantText:
    items = array_literals(constant.data.read(), constant.dtype)
    if len(items) != constant.count:
        raise CrtExportError(
            f"the constant has {len(items)} elements where {constant.count} are announced",
            location=constant.symbol,
        )
    return _ConstantText(
        _declared(constant),
        linkage,
        max(constant.align, constant.dtype.itemsize),
        block_comment([constant.comment]) if constant.comment else "",
        wrapped(items or ["0"]),
    )


def _declared(constant: Constant) -> str:
    return f"const {STORAGE[constant.dtype]} {constant.symbol}[{max(1, constant.count)}]"


def _used(artifact: Artifact) -> list[Function]:
    """What the calls reach; a compiler would warn about the rest."""
    symbols = {call.symbol for call in every_call(artifact.calls)}
    return [f for f in artifact.functions if f.symbol in symbols]


def _emit_model(artifact: Artifact, linked: bool, int_bits: IntBits) -> str:
    constants = artifact.reached_constants
    table = table_symbol(artifact) if linked and constants else None
    workspace = _workspace_name(artifact)
    state = "state" if abi.takes_state(artifact) else f"{artifact.prefix}_state"
    ends = [end for _, end, _ in abi.workspaces(artifact)] or [""]
    memory = (*(workspace + end for end in ends), state, table_symbol(artifact))
    taken = _file_scope(artifact, memory)
    pools = _workspaces(artifact, workspace)
    return environment().get_template("model/lib0.c.j2").render(
        banner=banner(artifact, f"{artifact.module}_lib0.c: constants, kernels and run function"),
        declarations=declarations(artifact),
        prefix=artifact.prefix,
        PREFIX=artifact.prefix.upper(),
        **_definitions(
            artifact, () if linked else (*constants, *artifact.image_constants), taken, int_bits
        ),
        linked_images=artifact.image_constants if linked else (),
        table=table,
        table_size=len(constants),
        table_comment=_table_comment(constants),
        used_pools=[pool for pool in pools if pool["used"]],
        mapped_pools=[pool for pool in pools if pool["mapped"]],
        owned_pools=[] if abi.takes_workspace(artifact) or artifact.common.workspace else [
            pool for pool in pools if pool["used"] or pool["mapped"]
        ],
        shared_workspace=_shared_workspace(artifact, workspace),
        system_lib=artifact.common.system_lib,
        maps=_maps(artifact, workspace),
        takes_workspace=abi.takes_workspace(artifact),
        pools=abi.caller_pools(artifact),
        state=state,
        state_size=artifact.state_size,
        takes_state=abi.takes_state(artifact),
        state_pool=abi.STATE_POOL,
        reset_prototype=reset_prototype(artifact),
        packed_reset=packed_prototype(abi.reset_symbol(artifact)),
        run_prototype=run_prototype(artifact),
        calls=c_calls.calls(artifact, workspace, state, table),
        null_checks=" ||\n        ".join(f"({p} == NULL)" for p in _pointers(artifact)),
        unchecked=_unchecked(artifact),
        **_externals(artifact),
        tensors=abi.packed_tensors(artifact),
        arity=abi.packed_arity(artifact),
        packed_prototype=packed_prototype(abi.packed_symbol(artifact)),
        packed_arguments=_packed_arguments(artifact),
        packed_targets=_packed_targets(artifact),
        packed_inputs=_copied(artifact, "inputs", artifact.inputs, 0),
        packed_outputs=_copied(artifact, "outputs", artifact.outputs, len(artifact.inputs)),
    )


def _definitions(
    artifact: Artifact, constants: Sequence[Constant], taken: frozenset[str], int_bits: IntBits
) -> dict[str, object]:
    """Constants that are text, and kernels, with what they need, as the template wants them.

    What another model of the package defines is declared only.
    """
    lent, borrowed = artifact.common.lent, artifact.common.borrowed
    texts = [
        _constant(c, "CRT_SHARED" if c.symbol in lent else "static")
        for c in constants if c.symbol not in borrowed
    ]
    kernels = [
        declare_kernel(f.kernel, f.symbol, taken) if f.symbol in borrowed
        else print_kernel(
            f.kernel, f.symbol, taken, shared=f.symbol in lent, int_bits=int_bits
        )
        for f in _used(artifact)
    ]
    needs = {key for kernel in kernels for key in kernel.needs}
    if any(needs_special(t.values) for t in texts):
        needs.add(SPECIAL)
    helpers = select_helpers(needs, int_bits)
    return {
        "includes": sorted(
            {h.include for h in helpers if h.include}
            | ({"#include <string.h>"} if artifact.io_in_workspace else set())
        ),
        "helpers": list(dict.fromkeys(h.text for h in helpers if h.text)),
        "constants": texts,
        "shares": bool(lent or borrowed or artifact.common.workspace),
        "borrowed": [_declared(c) for c in constants if c.symbol in borrowed],
        "kernels": [kernel.text for kernel in kernels],
    }


def _externals(artifact: Artifact) -> dict[str, object]:
    """Functions of others and the devices that they run on, as the template wants them."""
    contexts, externals = Contexts(artifact), called_externals(artifact)
    return {
        "externals": externals,
        "prototypes": contexts.prototypes(externals),
        "activate": contexts.activate(),
        "deactivate": contexts.deactivate(),
        "device_tables": contexts.tables(),
        "inflated": artifact.inflated_size and not abi.takes_buffer(artifact),
        "image_pool": abi.IMAGE_POOL,
        "contexts": context_fields(artifact.devices),
    }


def _table_comment(constants: Sequence[Constant]) -> str:
    text = "Where the constants are. They and this table are in an object of their own, because "
    lines = [f"{text}they are too many for text; they may be any distance away."]
    lines += [
        f"{index}: {STORAGE[c.dtype]} {c.symbol}[{c.count}]{', ' if c.comment else ''}{c.comment}"
        for index, c in enumerate(constants)
    ]
    return block_comment(lines)


def _file_scope(artifact: Artifact, memory: tuple[str, ...]) -> frozenset[str]:
    """Every name with file scope. Raises CrtExportError when one is given twice."""
    names = [c.symbol for c in artifact.constants] + [f.symbol for f in artifact.functions]
    names += [*memory, f"{artifact.prefix}_run", abi.packed_symbol(artifact)]
    names += [f"{artifact.prefix}_reset", abi.reset_symbol(artifact)]
    names += [function.symbol for function in artifact.externals]
    names += all_hooks(artifact)
    names += ["devices", "status", "crt_first"] if artifact.externals else []
    names += [constant.symbol for constant in artifact.image_constants]
    if artifact.images:
        names += [images_symbol(artifact), launched_symbol(artifact), DECODER, "program"]
        names += [f"{artifact.prefix}_{abi.IMAGE_POOL}"]
    names += ["inputs", "outputs", "workspace_pools"]  # parameters of run, which calls kernels
    names += [symbol for symbol, _, _ in abi.io_maps(artifact)]
    for name in names:
        if names.count(name) > 1:
            raise CrtExportError(
                f"the symbol {name!r} would be defined twice", location=artifact.module
            )
    return frozenset(names)


def _pointers(artifact: Artifact) -> list[str]:
    """What must not be NULL, structs before their members."""
    members = []
    if abi.takes_io(artifact):
        members += [f"inputs->{t.field}" for t in artifact.inputs]
        members += [f"outputs->{t.field}" for t in artifact.outputs]
    members += [f"workspace_pools->{name}" for name, _ in abi.caller_pools(artifact)]
    structs = [member.split("->")[0] for member in members]
    structs += ["devices"] if artifact.devices else []  # contexts may be NULL
    return [*dict.fromkeys(structs), *members]


def _unchecked(artifact: Artifact) -> list[str]:
    """Parameters of run that have no members to look at."""
    sides = (("inputs", artifact.inputs), ("outputs", artifact.outputs))
    return [name for name, tensors in sides if abi.takes_io(artifact) and not tensors]


def _workspaces(artifact: Artifact, workspace: str) -> list[dict[str, object]]:
    """The pools of the workspace: array or pointer, member of the struct, stem of macros, whether
    calls use it, whether inputs or outputs lie in it."""
    args = [a for c in every_call(artifact.calls) for a in c.args]
    args += every_condition(artifact.calls)
    used = {a.pool for a in args if isinstance(a, WorkspaceArg)}
    mapped = {t.place.pool for t in (*artifact.inputs, *artifact.outputs) if t.place is not None}
    return [
        {
            "name": workspace + end,
            "member": abi.WORKSPACE_POOL + end,
            "stem": (abi.WORKSPACE_POOL + end).upper(),
            "memory": end.removeprefix("_"),
            "used": number in used,
            "mapped": number in mapped,
        }
        for number, end, _ in abi.workspaces(artifact)
    ]


def _workspace_name(artifact: Artifact) -> str:
    """The array of the workspace, or the pointer to it; names of further pools begin so."""
    shared = artifact.common.workspace
    if shared is not None:
        return f"{shared.prefix}_shared_workspace"
    return "workspace" if abi.takes_workspace(artifact) else f"{artifact.prefix}_workspace"


def _shared_workspace(artifact: Artifact, workspace: str) -> dict[str, object] | None:
    """The one workspace of a package, as the template wants it; whether it is ``here``."""
    shared = artifact.common.workspace
    if shared is None:
        return None
    return {
        "here": shared.prefix == artifact.prefix,
        "align": shared.align,
        "pools": [
            {"name": workspace + end, "size": size, "memory": end.removeprefix("_"),
             "stem": (abi.WORKSPACE_POOL + end).upper()}
            for end, size in shared.pools
        ],
    }


def _maps(artifact: Artifact, workspace: str) -> list[dict[str, object]]:
    """The functions that tell where inputs and outputs lie, as the template wants them."""
    ends = {number: end for number, end, _ in abi.workspaces(artifact)}
    return [
        {
            "symbol": symbol,
            "side": side,
            "prototype": map_prototype(artifact, symbol, side),
            "pools": [
                pool for pool in _workspaces(artifact, workspace)
                if any(t.place and ends[t.place.pool] == f"_{pool['memory']}".rstrip("_")
                       for t in tensors)
            ],
            "nulls": ", ".join(["NULL"] * max(len(tensors), 1)),
            "members": [
                (f"{side}.{t.field}", f"(void *)&{workspace}{ends[t.place.pool]}[{t.place.offset}]")
                for t in tensors if t.place is not None
            ],
        }
        for symbol, side, tensors in abi.io_maps(artifact)
    ]


def _copied(
    artifact: Artifact, side: str, tensors: Sequence[Interface], first: int
) -> list[tuple[str, str, int]]:
    """What the packed function copies: struct member, its size, the position of its argument."""
    stems = macro_stems([t.field for t in artifact.inputs], [t.field for t in artifact.outputs])
    own = stems[0] if side == "inputs" else stems[1]
    return [
        (f"{side}.{t.field}", f"{artifact.prefix.upper()}_{stem}_SIZE", position)
        for position, (t, stem) in enumerate(zip(tensors, own, strict=True), first)
    ]


def _packed_targets(artifact: Artifact) -> list[tuple[str, int | None]]:
    """Struct members that the packed function fills, each with the position of its argument."""
    targets = [f"inputs.{t.field}" for t in artifact.inputs]
    targets += [f"outputs.{t.field}" for t in artifact.outputs]
    targets += [f"workspace_pools.{name}" for name, _ in abi.caller_pools(artifact)]
    numbered: list[tuple[str, int | None]] = [(t, i) for i, t in enumerate(targets)]
    if not abi.takes_io(artifact):
        return numbered[len(artifact.inputs) + len(artifact.outputs) :]
    return [*numbered, *((f"{name}.unused", None) for name in _unchecked(artifact))]


def _packed_arguments(artifact: Artifact) -> str:
    words = [f"inputs ({len(artifact.inputs)})", f"outputs ({len(artifact.outputs)})"]
    words += [name for name, _ in abi.caller_pools(artifact)]
    words += [f"context of {field}" for field in context_fields(artifact.devices)]
    return ", ".join(words)


# ---- lib1: metadata


class _TensorInfo(Struct, frozen=True):
    name: str
    shape: str
    rank: int
    dtype: str


def _tensor_info(tensor: Interface) -> _TensorInfo:
    shape = tensor.type.shape
    return _info(abi.metadata_name(tensor), shape, tensor.type.dtype)


def _info(name: str, shape: tuple[int, ...], dtype: DType) -> _TensorInfo:
    return _TensorInfo(
        c_string(name),
        ", ".join(map(str, shape)),
        len(shape),
        ", ".join(map(str, abi.dl_data_type(dtype))),
    )


def _emit_metadata(artifact: Artifact) -> str:
    pools = [_info(name, (size,), DType.UINT8) for name, size in abi.caller_pools(artifact)]
    return environment().get_template("model/lib1.c.j2").render(
        banner=banner(artifact, f"{artifact.module}_lib1.c: what the model's tensors look like"),
        groups=[
            {"name": "inputs", "tensors": [_tensor_info(t) for t in artifact.inputs]},
            {"name": "outputs", "tensors": [_tensor_info(t) for t in artifact.outputs]},
            {"name": "workspace_pools", "tensors": pools},
        ],
        version=abi.METADATA_VERSION,
        mod_name=c_string(artifact.prefix),
        prototype=packed_prototype(f"{artifact.prefix}_get_c_metadata"),
        error_null=abi.ERROR_NULL,
    )
