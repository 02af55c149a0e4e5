"""Prints ``tvmgen_<module>.h``: a model's interface for applications, in C99 and C++.

Applications written for microTVM's AOT output compile with it. Members of the input struct are
``const void *`` where microTVM has ``void *``, so that test data and images can stay in flash; both
``void *`` and arrays can be assigned to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from crtexport.artifact import abi
from crtexport.artifact.contexts import (
    called_externals,
    context_fields,
    context_text,
    image_text,
    images_symbol,
    launched,
    launched_symbol,
)
from crtexport.artifact.model import Artifact, Feed, FunctionCall, Interface
from crtexport.artifact.symbols import macro_stems
from crtexport.backends.c.literals import block_comment, c_string, literal
from crtexport.backends.c.prototypes import (
    feed_prototypes,
    map_prototype,
    reset_prototype,
    run_prototype,
)
from crtexport.ir.types import Quantization, TensorType
from crtexport.kir.language import Scalar

Lines = Iterator[str]


class _Tensor(Struct, frozen=True):
    """An input or output in the header; ``macros`` are (name, value), names without the stem."""

    field: str
    stem: str
    doc: str
    macros: tuple[tuple[str, str], ...]


LICENSE = "SPDX-License-Identifier: Apache-2.0"
"""The licence of generated text; the model's own parts keep the model's licence."""


def banner(artifact: Artifact, purpose: str, threads: str = "") -> str:
    """Returns the comment at the top of a generated file. ``threads`` says whether its functions
    are re-entrant, if not as in :func:`reentrancy`."""
    return block_comment([
        LICENSE, "", purpose, *artifact.header_comment, threads or reentrancy(artifact)
    ])


def emit_header(artifact: Artifact) -> str:
    """Returns the text of ``tvmgen_<module>.h``.

    Raises CrtExportError if two tensors would share a struct member or a macro.
    """
    opening = banner(artifact, f"{artifact.prefix}.h: the C interface of one neural network")
    return f"{opening}\n\n{declarations(artifact)}"


def declarations(artifact: Artifact) -> str:
    """Returns the header from its include guard on; raises as :func:`emit_header`.

    Sources begin with the same text, for builds that compile them without a folder of headers.
    """
    inputs, outputs = _tensors(artifact)
    lines = (
        *_opening(artifact),
        *_workspace(artifact),
        *(_state(artifact) if artifact.state_size else ()),
        *(_inflated(artifact) if artifact.inflated_size else ()),
        *_constants(artifact),
        *(line for tensor in inputs + outputs for line in _macro_lines(artifact, tensor)),
        "",
        *(_rows(artifact, artifact.feed) if artifact.feed is not None else ()),
        *_io_structs(artifact, inputs, outputs),
        *_other_structs(artifact),
        "",
        *_programs(artifact),
        *(line for _map in abi.io_maps(artifact) for line in _io_map(artifact, *_map[:2])),
        *_run(artifact),
        *(_feed(artifact, artifact.feed) if artifact.feed is not None else ()),
        *(_reset(artifact) if artifact.state_size else ()),
        "", "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {_macro(artifact, 'H_')} */",
    )
    return "\n".join(lines) + "\n"


def _macro(artifact: Artifact, name: str) -> str:
    return f"{artifact.prefix.upper()}_{name}"


def _define(artifact: Artifact, name: str, value: object) -> str:
    return f"#define {_macro(artifact, name)} {value}"


def _documentation(*lines: str) -> tuple[str, ...]:
    """Returns a comment of several lines that aren't wrapped or escaped; never use it for text of
    models."""
    return ("/*!", *(f" * {line}".rstrip() for line in lines), " */")


def _opening(artifact: Artifact) -> Lines:
    yield f"#ifndef {_macro(artifact, 'H_')}"
    yield f"#define {_macro(artifact, 'H_')}"
    yield from ("", "#include <stdint.h>")
    if artifact.images:
        yield from ("", "#include <crt_device.h>")
    yield from ("", "#ifdef __cplusplus", 'extern "C" {', "#endif", "")
    yield "/*! \\brief Result: the module ran */"
    yield _define(artifact, "OK", 0)
    yield (
        "/*! \\brief Result: a pointer is NULL (a struct, one of its members, or the data of a "
        "tensor) */"
    )
    yield _define(artifact, "ERROR_NULL", f"({abi.ERROR_NULL})")
    yield "/*! \\brief Result of the packed function only: wrong number or kind of arguments */"
    yield _define(artifact, "ERROR_ARGUMENTS", f"({abi.ERROR_ARGUMENTS})")
    if artifact.feed is not None:
        yield "/*! \\brief Result: more rows than are missing, or a result before all were given */"
        yield _define(artifact, "ERROR_ROWS", f"({abi.ERROR_ROWS})")
    yield ""


def _workspace(artifact: Artifact) -> Lines:
    spilled = [pool for pool in artifact.spilled if pool.size]
    with_io = "inputs, outputs and " if artifact.io_in_workspace else ""
    owner: tuple[str, ...] = ()
    if abi.takes_workspace(artifact):
        owner = ("", f"The caller provides it: {artifact.prefix}_workspace_pools.workspace")
    elif artifact.common.workspace is not None:
        shared = "share one, in .bss: no two of them may run at the same time."
        owner = ("", f"The models of the package {shared}")
    elif artifact.workspace_size or spilled:
        owner = ("", "The module owns it, in .bss.")
    yield from _documentation(
        f"\\brief Memory for {with_io}intermediate results, in bytes, and its alignment", *owner
    )
    yield _define(artifact, "WORKSPACE_SIZE", artifact.workspace_size)
    yield _define(artifact, "WORKSPACE_ALIGN", artifact.workspace_align)
    for pool in spilled:
        yield (
            f'/*! \\brief What of it lies in the memory "{pool.memory}", in bytes, aligned alike */'
        )
        yield _define(artifact, f"WORKSPACE_{pool.memory.upper()}_SIZE", pool.size)
    for name, size in abi.caller_pools(artifact):
        yield _define(artifact, f"{name.upper()}_WORKSPACE_POOL_SIZE", size)


def _state(artifact: Artifact) -> Lines:
    yield ""
    yield from _documentation(
        "\\brief What the model keeps from run to run, in bytes, and its alignment",
        "",
        "Zeros stand for the initial values.",
        "The caller provides it, zeroed or reset before the first run: "
        f"{artifact.prefix}_workspace_pools.state" if abi.takes_state(artifact)
        else "The module owns it, in .bss.",
    )
    yield _define(artifact, "STATE_SIZE", artifact.state_size)
    yield _define(artifact, "STATE_ALIGN", artifact.workspace_align)
    for kept in artifact.states:
        end = kept.offset + kept.type.nbytes
        yield block_comment([f'"{kept.name}" {kept.type}: bytes {kept.offset} to {end}'])


def _inflated(artifact: Artifact) -> Lines:
    yield ""
    yield from _documentation(
        "\\brief What compressed programs of devices are inflated into, in bytes, and its "
        "alignment",
        "",
        "One at a time: when the device is opened.",
        f"The caller provides it: {artifact.prefix}_workspace_pools.{abi.IMAGE_POOL}"
        if abi.takes_buffer(artifact) else "The module owns it, in .bss.",
    )
    yield _define(artifact, f"{abi.IMAGE_POOL.upper()}_SIZE", artifact.inflated_size)
    yield _define(artifact, f"{abi.IMAGE_POOL.upper()}_ALIGN", artifact.inflated_align)


def _constants(artifact: Artifact) -> Lines:
    programs = ", programs of devices" if artifact.images else ""
    yield f"/*! \\brief Weights{programs} and tables in read-only memory, in bytes */"
    yield _define(artifact, "CONSTANTS_SIZE", artifact.constants_size)


def _macro_lines(artifact: Artifact, tensor: _Tensor) -> Lines:
    yield ""
    yield tensor.doc
    for name, value in tensor.macros:
        yield _define(artifact, f"{tensor.stem}_{name}", value)


def _io_structs(
    artifact: Artifact, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor]
) -> Lines:
    const = "" if artifact.io_in_workspace else "const "
    for side, kind, tensors in (("input", const, inputs), ("output", "", outputs)):
        if side == "output":
            yield ""
        yield (
            f'/*! \\brief {side.capitalize()} tensor pointers for the module "{artifact.module}" */'
        )
        yield f"struct {artifact.prefix}_{side}s {{"
        for tensor in tensors:
            yield f"  {kind}void *{tensor.field};"
        if not tensors:
            yield f"  {kind}void *unused; /* the model has no {side}s */"
        yield "};"


def _other_structs(artifact: Artifact) -> Lines:
    if pools := abi.caller_pools(artifact):
        yield ""
        yield f'/*! \\brief Workspace pointers for the module "{artifact.module}" */'
        yield f"struct {artifact.prefix}_workspace_pools {{"
        for name, _ in pools:
            yield f"  void *{name}; /* {_macro(artifact, name.upper())}_SIZE bytes, aligned */"
        yield "};"
    if artifact.devices:
        yield ""
        yield from _documentation(
            f'\\brief Device contexts for the module "{artifact.module}"',
            "",
            "They reach the hooks TVMDevice...Activate, Open, Close and Deactivate, and the "
            "functions that run",
            "on the devices; nothing else looks at them, so they may be NULL.",
        )
        yield f"struct {artifact.prefix}_devices {{"
        fields = context_fields(artifact.devices)
        for field, device in zip(fields, artifact.devices, strict=True):
            yield f"  void *{field}; {block_comment([context_text(device)])}"
        yield "};"


def _programs(artifact: Artifact) -> Lines:
    if artifact.images:
        yield "/*! \\brief The programs of devices, in the order of the devices */"
        for image in artifact.images:
            yield block_comment([image_text(artifact, image)])
        yield _define(artifact, "DEVICE_IMAGES", len(artifact.images))
        count = _macro(artifact, "DEVICE_IMAGES")
        yield f"extern const struct crt_device_image {images_symbol(artifact)}[{count}];"
        yield ""
    if functions := launched(artifact):
        yield "/*! \\brief The functions of these programs that the model calls */"
        yield _define(artifact, "DEVICE_FUNCTIONS", len(functions))
        count = _macro(artifact, "DEVICE_FUNCTIONS")
        yield f"extern const struct crt_device_function {launched_symbol(artifact)}[{count}];"
        yield ""


def _io_map(artifact: Artifact, symbol: str, side: str) -> Lines:
    yield from _documentation(
        f'\\brief Tells where in the workspace the {side} of the module "{artifact.module}" lie',
        "",
        "Write all inputs before each run: intermediate results and outputs may take their bytes."
        if side == "inputs" else
        "Read the outputs after a run and before the next inputs are written: they may share "
        "bytes.",
        "",
        *(
            (
                "\\param workspace_pools Memory of the caller's",
                "\\return A pointer for each tensor; all are NULL if there is no workspace",
            )
            if abi.takes_workspace(artifact)
            else ("\\return A pointer for each tensor, always the same",)
        ),
    )
    yield f"{map_prototype(artifact, symbol, side)};"
    yield ""


def _run(artifact: Artifact) -> Lines:
    prefix, pools = artifact.prefix, abi.caller_pools(artifact)
    tensors = [
        "Tensors are row-major without gaps, aligned like their elements, and don't overlap.",
    ]
    if artifact.io_in_workspace:
        tensors = [
            f"Inputs and outputs lie in the workspace, where {prefix}_map_inputs and",
            f"{prefix}_map_outputs tell. Tensors are row-major without gaps.",
        ]
    checked = pools or artifact.devices or not artifact.io_in_workspace
    result = [f"\\return {_macro(artifact, 'OK')}"]
    if checked:
        result[0] += f" or {_macro(artifact, 'ERROR_NULL')}"
    if called_externals(artifact):
        result[0] += ", or what an external function"
        code = ", or a code of crt_image.h" if artifact.images else ""
        result.append(f"or a device's hook returned that isn't 0{code}")
    yield from _documentation(
        f'\\brief Runs the module "{artifact.module}" once',
        "",
        *tensors,
        reentrancy(artifact),
        "",
        *(
            () if artifact.io_in_workspace
            else ("\\param inputs Input tensors, only read", "\\param outputs Output tensors")
        ),
        *(("\\param workspace_pools Memory of the caller's",) if pools else ()),
        *(("\\param devices Contexts for the hooks of devices",) if artifact.devices else ()),
        *result,
    )
    yield f"{run_prototype(artifact)};"


def _rows(artifact: Artifact, feed: Feed[FunctionCall]) -> Lines:
    field = artifact.inputs[feed.index].field
    yield f"/*! \\brief Rows of {field} until there is a result, and bytes of a row */"
    yield _define(artifact, "FEED_ROWS", f"{feed.rows}u")
    yield _define(artifact, "FEED_ROW_SIZE", f"{feed.row_bytes}u")
    if feed.hop:
        yield "/*! \\brief Further rows until there is the next result */"
        yield _define(artifact, "FEED_HOP", f"{feed.hop}u")
    yield ""


def _feed(artifact: Artifact, feed: Feed[FunctionCall]) -> Lines:
    begin, more, finish = feed_prototypes(artifact)
    null, wrong = _macro(artifact, "ERROR_NULL"), _macro(artifact, "ERROR_ROWS")
    same = "the same for all rows" if feed.hop else "the same until there is a result"
    pools = (
        (f"\\param workspace_pools Memory of the caller's, {same}",)
        if abi.caller_pools(artifact) else ()
    )
    yield ""
    yield from _documentation(
        f'\\brief Starts the input of the module "{artifact.module}" from its first row',
        "", *pools, f"\\return {_macro(artifact, 'OK')}" + (f" or {null}" if pools else ""),
    )
    yield f"{begin};"
    yield ""
    yield from _documentation(
        "\\brief Takes the next rows of the input, and computes as far as they allow",
        "",
        "Any number of rows at a time, in their order; they aren't read after the call.",
        *_kept(feed),
        "",
        f"\\param rows The next rows, {_macro(artifact, 'FEED_ROW_SIZE')} bytes each, aligned",
        "like their elements",
        "\\param count The number of these rows", *pools,
        "\\return The number of rows that are missing until the result, 0 if none is; or",
        f"{null}; or {wrong}: " + (
            "the input wasn't started" if feed.hop else "there are more rows than are missing"
        ),
    )
    yield f"{more};"
    yield ""
    yield from _documentation(
        "\\brief Computes the result, after all rows of the input were given",
        *_next(artifact, feed),
        "",
        "\\param outputs Output tensors", *pools,
        f"\\return {_macro(artifact, 'OK')}, {null}, or {wrong}: rows are missing",
    )
    yield f"{finish};"


def _kept(feed: Feed[FunctionCall]) -> tuple[str, ...]:
    if feed.hop:
        return (
            "The workspace holds what was computed, from one result to the next: nothing else may",
            "write to it.",
        )
    return (
        "Until the result is there the workspace holds what was computed: nothing else may write",
        "to it.",
    )


def _next(artifact: Artifact, feed: Feed[FunctionCall]) -> tuple[str, ...]:
    """Returns the lines about results after the first."""
    if not feed.hop:
        return ()
    return (
        "", f"{_macro(artifact, 'FEED_HOP')} further rows make the next one, as if the window of",
        "all rows had moved on: what was computed of the others is used again. A result needn't be",
        "computed: the next rows can also be given without it.",
    )


def reentrancy(artifact: Artifact) -> str:
    """Returns a sentence that says whether ``run`` is re-entrant."""
    if abi.caller_pools(artifact):
        return "Re-entrant: calls with different memory may run at the same time."
    if artifact.common.workspace is not None:
        shared = "shared by the models of the package: one call of any at a time."
        return f"Not re-entrant: the memory is static and {shared}"
    own = (artifact.workspace_size, *(pool.size for pool in artifact.spilled),
           artifact.state_size, artifact.inflated_size)
    if any(own):
        return "Not re-entrant: the module's memory is static, one call at a time."
    return "Re-entrant: there is no workspace, calls may run at the same time."


def _reset(artifact: Artifact) -> Lines:
    given = abi.takes_state(artifact)
    zeroed = " if the memory is zeroed" if given else ""
    null = f" or {_macro(artifact, 'ERROR_NULL')}" if given else ""
    yield ""
    yield from _documentation(
        "\\brief Gives what the model keeps from run to run its initial values again",
        "",
        f"Not needed before the first run{zeroed}; not while a run is in progress.",
        "",
        f"\\return {_macro(artifact, 'OK')}{null}",
    )
    yield f"{reset_prototype(artifact)};"


def _tensors(artifact: Artifact) -> tuple[list[_Tensor], list[_Tensor]]:
    sides = (("input", artifact.inputs), ("output", artifact.outputs))
    stems = macro_stems([t.field for t in artifact.inputs], [t.field for t in artifact.outputs])
    inputs, outputs = (
        [
            _Tensor(tensor.field, stem, _doc(tensor, kind), _macros(tensor.type))
            for tensor, stem in zip(tensors, stems[side], strict=True)
        ]
        for side, (kind, tensors) in enumerate(sides)
    )
    return inputs, outputs


def _doc(tensor: Interface, kind: str) -> str:
    lines = [f'\\brief {kind.capitalize()} tensor "{tensor.name}": {tensor.type}']
    quant = tensor.type.quant
    if quant is not None and quant.per_tensor:
        lines.append("Real value = SCALE * (stored value - ZERO_POINT)")
    return block_comment(lines, opening="/*!")


def _macros(type_: TensorType) -> tuple[tuple[str, str], ...]:
    code, bits, _ = abi.dl_data_type(type_.dtype)
    shape = ", ".join(map(str, type_.shape)) or "1"
    return (
        ("SIZE", str(type_.nbytes)),
        ("ELEMENTS", str(type_.elements)),
        ("DTYPE", c_string(type_.dtype.value)),
        ("DTYPE_CODE", str(code)),
        ("DTYPE_BITS", str(bits)),
        ("NDIM", str(len(type_.shape))),
        ("SHAPE", "{" + shape + "}"),
        *_quantization(type_.quant),
    )


def _quantization(quant: Quantization | None) -> tuple[tuple[str, str], ...]:
    if quant is None or not quant.per_tensor:
        return ()
    scale, zero_point = quant.scale[0], quant.zero_point[0]
    exact = float(np.float32(scale)) == scale
    return (
        ("SCALE", literal(scale, Scalar.F32 if exact else Scalar.F64)),
        ("ZERO_POINT", f"({zero_point})" if zero_point < 0 else str(zero_point)),
    )
