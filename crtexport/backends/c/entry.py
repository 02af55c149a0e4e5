"""Prints the functions that callers use: run, reset, and their packed forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.artifact import abi
from crtexport.artifact.contexts import called_externals, context_fields
from crtexport.artifact.model import Artifact, Interface
from crtexport.artifact.symbols import macro_stems
from crtexport.backends.c.calls import Caller
from crtexport.backends.c.contexts import Contexts
from crtexport.backends.c.feed import feed_sections, whole
from crtexport.backends.c.functions import function, unless
from crtexport.backends.c.memory import state_name, workspace_name, workspace_pools
from crtexport.backends.c.prototypes import (
    map_prototype,
    packed_prototype,
    reset_prototype,
    run_prototype,
)

_TENSOR_DATA = """\
/* The first element of the tensor behind a handle, or NULL. */
static void *crt_tensor_data(const TVMValue *value)
{
    const DLTensor *const tensor = (const DLTensor *)value->v_handle;
    if ((tensor == NULL) || (tensor->data == NULL)) {
        return NULL;
    }
    return (uint8_t *)tensor->data + (size_t)tensor->byte_offset;
}"""
_FIRST = """\
/* The code to report: the first that is not 0. */
static int32_t crt_first(int32_t status, int32_t next)
{
    return (status != 0) ? status : next;
}"""
_NO_TENSOR = "(type_codes[{0}] != kTVMDLTensorHandle) && (type_codes[{0}] != kTVMNDArrayHandle)"
_UNUSED_RESULTS = (
    "    (void)ret_value;", "    (void)ret_type_code;", "    (void)resource_handle;",
)


def entry_sections(artifact: Artifact, table: str | None) -> Iterator[str]:
    """Yields the functions of a model.

    ``table`` is the array of pointers to its constants, if those are in linked objects. Raises
    CrtExportError if calls don't fit their kernels.
    """
    if artifact.devices:
        yield _FIRST
    for symbol, side, tensors in abi.io_maps(artifact):
        yield _map(artifact, symbol, side, tensors)
    if artifact.feed is not None:
        yield from feed_sections(artifact, artifact.feed, table)
    yield _run(artifact, table)
    if artifact.state_size:
        yield _reset(artifact)
    yield _TENSOR_DATA
    packed = packed_prototype(abi.packed_symbol(artifact))
    yield f"{packed};"
    yield f"{_packed_comment(artifact)}\n{_packed_run(artifact, packed)}"
    if artifact.state_size:
        packed = packed_prototype(abi.reset_symbol(artifact))
        arguments = abi.STATE_POOL if abi.takes_state(artifact) else "none"
        yield f"{packed};"
        yield (
            f"/* The same for {artifact.prefix}_reset; arguments: {arguments}. */\n"
            f"{_packed_reset(artifact, packed)}"
        )


def _map(artifact: Artifact, symbol: str, side: str, tensors: Sequence[Interface]) -> str:
    """Returns the function that returns the addresses of inputs or outputs in the workspace."""
    nulls = ", ".join(["NULL"] * max(len(tensors), 1))
    declared = [f"    struct {artifact.prefix}_{side} {side} = {{{nulls}}};"]
    pools = workspace_pools(artifact)
    names = {pool.number: pool.name for pool in pools}
    lines = []
    if abi.takes_workspace(artifact):
        members = [f"workspace_pools->{pool.member} == NULL" for pool in pools if pool.mapped]
        own = [p for p in pools if any(t.place and t.place.pool == p.number for t in tensors)]
        declared += [f"    uint8_t *{pool.name};" for pool in own]
        lines = unless(["workspace_pools == NULL", *members], side)
        lines += [f"    {p.name} = (uint8_t *)workspace_pools->{p.member};" for p in own]
    lines += [
        f"    {side}.{t.field} = (void *)&{names[t.place.pool]}[{t.place.offset}];"
        for t in tensors if t.place is not None
    ]
    return function(map_prototype(artifact, symbol, side), declared, lines,
                     [f"    return {side};"])


def _run(artifact: Artifact, table: str | None) -> str:
    null = f"{artifact.prefix.upper()}_ERROR_NULL"
    if artifact.feed is not None:
        checks = unless([f"{pointer} == NULL" for pointer in _pointers(artifact)], null)
        return function(run_prototype(artifact), checks, whole(artifact, artifact.feed))
    contexts, state = Contexts(artifact), state_name(artifact)
    caller_memory: dict[str, str] = {}  # pointers to the caller's memory, by struct member
    if abi.takes_workspace(artifact):
        caller_memory = {pool.member: pool.name for pool in workspace_pools(artifact) if pool.used}
    if abi.takes_state(artifact):
        caller_memory[abi.STATE_POOL] = state
    declared = [f"    uint8_t *{name};" for name in caller_memory.values()]
    if artifact.images:
        declared.append("    const void *program;")
    if called_externals(artifact):
        declared.append("    int32_t status;")
    begin = [f"    (void){name};" for name in _unchecked(artifact)]
    begin += unless([f"{pointer} == NULL" for pointer in _pointers(artifact)], null)
    begin += [f"    {name} = (uint8_t *)workspace_pools->{m};" for m, name in caller_memory.items()]
    activate = contexts.activate()
    if activate:
        activate.insert(
            0,
            "    /* Devices are active while the model runs, and open while one of their functions "
            "does. */",
        )
    calls = Caller(artifact, workspace_name(artifact), state, table).statements(artifact.calls)
    deactivate = contexts.deactivate()
    result = "status" if deactivate else f"{artifact.prefix.upper()}_OK"
    return function(
        run_prototype(artifact), declared, begin, activate, *([call] for call in calls),
        deactivate, [f"    return {result};"],
    )


def _pointers(artifact: Artifact) -> list[str]:
    """Returns the pointers that must not be NULL, structs before their members."""
    members = []
    if abi.takes_io(artifact):
        members += [f"inputs->{t.field}" for t in artifact.inputs]
        members += [f"outputs->{t.field}" for t in artifact.outputs]
    members += [f"workspace_pools->{name}" for name, _ in abi.caller_pools(artifact)]
    structs = [member.split("->")[0] for member in members]
    structs += ["devices"] if artifact.devices else []  # contexts may be NULL
    return [*dict.fromkeys(structs), *members]


def _unchecked(artifact: Artifact) -> list[str]:
    """Returns the parameters of run that have no members to check."""
    sides = (("inputs", artifact.inputs), ("outputs", artifact.outputs))
    return [name for name, tensors in sides if abi.takes_io(artifact) and not tensors]


def _reset(artifact: Artifact) -> str:
    macros, state = artifact.prefix.upper(), state_name(artifact)
    declared, lines = [], []
    if abi.takes_state(artifact):
        member = f"workspace_pools->{abi.STATE_POOL}"
        declared = [f"    uint8_t *{state};"]
        lines = unless(["workspace_pools == NULL", f"{member} == NULL"], f"{macros}_ERROR_NULL")
        lines.append(f"    {state} = (uint8_t *){member};")
    lines += [
        f"    for (size_t i = 0; i < {macros}_STATE_SIZE; ++i) {{", f"        {state}[i] = 0;",
        "    }",
    ]
    return function(
        reset_prototype(artifact), declared, lines, [f"    return {macros}_OK;"]
    )


# ---- packed functions


def _packed_comment(artifact: Artifact) -> str:
    words = [f"inputs ({len(artifact.inputs)})", f"outputs ({len(artifact.outputs)})"]
    words += [name for name, _ in abi.caller_pools(artifact)]
    words += [f"context of {field}" for field in context_fields(artifact.devices)]
    text = f"The same for callers that found it by name; arguments: {', '.join(words)}."
    if abi.takes_io(artifact):
        return f"/* {text} */"
    return f"/*\n * {text}\n * They have buffers for inputs and outputs, which are copied.\n */"


def _packed_run(artifact: Artifact, prototype: str) -> str:
    prefix, pools = artifact.prefix, abi.caller_pools(artifact)
    declared = [f"    struct {prefix}_inputs inputs;", f"    struct {prefix}_outputs outputs;"]
    if pools:
        declared.append(f"    struct {prefix}_workspace_pools workspace_pools;")
    if artifact.devices:
        declared.append(f"    struct {prefix}_devices devices;")
    if artifact.io_in_workspace:
        declared.append("    int status;")
    targets = [f"inputs.{t.field}" for t in artifact.inputs]
    targets += [f"outputs.{t.field}" for t in artifact.outputs]
    targets += [f"workspace_pools.{name}" for name, _ in pools]
    values = [f"    {target} = {_data(position)};" for position, target in enumerate(targets)]
    if artifact.io_in_workspace:
        values = values[len(artifact.inputs) + len(artifact.outputs) :]
    values += [f"    {name}.unused = NULL;" for name in _unchecked(artifact)]
    lines = [*_UNUSED_RESULTS, *_checked_arguments(artifact), *values]
    args = [
        *(("&inputs", "&outputs") if abi.takes_io(artifact) else ()),
        *(("&workspace_pools",) if pools else ()), *(("&devices",) if artifact.devices else ()),
    ]
    call = f"(int){prefix}_run({', '.join(args)})"
    lines += (
        [f"    return {call};"] if abi.takes_io(artifact) else _copied_io(artifact, call)
    )
    return function(prototype, declared, lines)


def _data(position: int) -> str:
    return f"crt_tensor_data(&args[{position}])"


def _no_arguments(result: str) -> list[str]:
    return [
        "    if ((args == NULL) || (type_codes == NULL)) {", f"        return {result};", "    }",
    ]


def _checked_arguments(artifact: Artifact) -> list[str]:
    macros = artifact.prefix.upper()
    null, wrong = f"{macros}_ERROR_NULL", f"{macros}_ERROR_ARGUMENTS"
    tensors, fields = abi.packed_tensors(artifact), context_fields(artifact.devices)
    lines = [
        *_no_arguments(null),
        f"    if (num_args != {abi.packed_arity(artifact)}) {{",
        f"        return {wrong};",
        "    }",
        f"    for (int i = 0; i < {tensors if fields else 'num_args'}; ++i) {{",
        f"        if ({_NO_TENSOR.format('i')}) {{",
        f"            return {wrong};",
        "        }",
        "        if (crt_tensor_data(&args[i]) == NULL) {",
        f"            return {null};",
        "        }",
        "    }",
    ]
    if fields:
        lines += [
            f"    for (int i = {tensors}; i < num_args; ++i) {{",
            "        if ((type_codes[i] != kTVMOpaqueHandle) && (type_codes[i] != kTVMNullptr)) {",
            f"            return {wrong};",
            "        }",
            "    }",
        ]
    for position, name in enumerate(fields, tensors):
        lines.append(
            f"    devices.{name} = (type_codes[{position}] == kTVMNullptr) ? NULL : "
            f"args[{position}].v_handle;"
        )
    return lines


def _copied_io(artifact: Artifact, call: str) -> list[str]:
    """Returns statements that copy inputs into the workspace, call run, and copy the outputs from
    there."""
    macros = artifact.prefix.upper()
    pools = "&workspace_pools" if abi.takes_workspace(artifact) else ""
    lines = [
        f"    {side} = {symbol}({pools});" for symbol, side, _ in abi.io_maps(artifact)
    ]
    stems = macro_stems([t.field for t in artifact.inputs], [t.field for t in artifact.outputs])
    for position, (tensor, stem) in enumerate(zip(artifact.inputs, stems[0], strict=True)):
        lines.append(
            f"    (void)memmove(inputs.{tensor.field}, {_data(position)}, {macros}_{stem}_SIZE);"
        )
    lines += [
        f"    status = {call};", f"    if (status != {macros}_OK) {{", "        return status;",
        "    }",
    ]
    outputs = zip(artifact.outputs, stems[1], strict=True)
    for position, (tensor, stem) in enumerate(outputs, len(artifact.inputs)):
        lines.append(
            f"    (void)memmove({_data(position)}, outputs.{tensor.field}, {macros}_{stem}_SIZE);"
        )
    return [*lines, f"    return {macros}_OK;"]


def _packed_reset(artifact: Artifact, prototype: str) -> str:
    prefix, macros = artifact.prefix, artifact.prefix.upper()
    if not abi.takes_state(artifact):
        return function(prototype, [
            *_UNUSED_RESULTS, "    (void)args;", "    (void)type_codes;",
            "    if (num_args != 0) {", f"        return {macros}_ERROR_ARGUMENTS;", "    }",
            f"    return (int){prefix}_reset();",
        ])
    return function(
        prototype,
        [f"    struct {prefix}_workspace_pools workspace_pools;"],
        [
            *_UNUSED_RESULTS,
            *_no_arguments(f"{macros}_ERROR_NULL"),
            "    if ((num_args != 1) ||",
            f"        ({_NO_TENSOR.format(0)})) {{",
            f"        return {macros}_ERROR_ARGUMENTS;",
            "    }",
            *(
                f"    workspace_pools.{name} = {_data(0) if name == abi.STATE_POOL else 'NULL'};"
                for name, _ in abi.caller_pools(artifact)
            ),
            f"    return (int){prefix}_reset(&workspace_pools);",
        ],
    )
