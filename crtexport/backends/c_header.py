"""Prints ``tvmgen_<module>.h``: what an application sees of a model, in C99 and C++.

It accepts what applications written for microTVM's AOT output do. Members of the input struct are
``const void *`` where microTVM has ``void *``, so that test data and images can stay in flash; both
``void *`` and arrays can be assigned to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
from crtexport.artifact.model import Artifact, Interface
from crtexport.artifact.symbols import macro_stems
from crtexport.backends.c_literals import block_comment, c_string, literal
from crtexport.ir.types import Quantization, TensorType
from crtexport.kernels.ir import Scalar
from crtexport.resources import environment


@dataclass(frozen=True)
class _Tensor:
    """An input or output as the template wants it; ``macros`` are (name, value) after the stem."""

    field: str
    stem: str
    doc: str
    macros: tuple[tuple[str, str], ...]


def banner(artifact: Artifact, purpose: str) -> str:
    """The comment that opens a generated file, with its newline."""
    return block_comment([purpose, *artifact.header_comment]) + "\n"


def run_prototype(artifact: Artifact) -> str:
    """The declaration of ``tvmgen_<module>_run``, without its semicolon."""
    prefix = artifact.prefix
    params = []
    if abi.takes_io(artifact):
        params = [
            f"const struct {prefix}_inputs *inputs", f"const struct {prefix}_outputs *outputs"
        ]
    if abi.caller_pools(artifact):
        params.append(_pools_parameter(artifact))
    if artifact.devices:
        params.append(f"const struct {prefix}_devices *devices")
    if len(params) < 2:
        return f"int32_t {prefix}_run({params[0] if params else 'void'})"
    return f"int32_t {prefix}_run(\n    " + ",\n    ".join(params) + ")"


def map_prototype(artifact: Artifact, symbol: str, side: str) -> str:
    """The declaration of a function of ``abi.io_maps``, without its semicolon."""
    parameter = _pools_parameter(artifact) if abi.takes_workspace(artifact) else "void"
    return f"struct {artifact.prefix}_{side} {symbol}(\n    {parameter})"


def reset_prototype(artifact: Artifact) -> str:
    """The declaration of ``tvmgen_<module>_reset``, without its semicolon."""
    parameter = _pools_parameter(artifact) if abi.takes_state(artifact) else "void"
    return f"int32_t {artifact.prefix}_reset({parameter})"


def _pools_parameter(artifact: Artifact) -> str:
    return f"const struct {artifact.prefix}_workspace_pools *workspace_pools"


def emit_header(artifact: Artifact) -> str:
    """The text of ``tvmgen_<module>.h``.

    Raises CrtExportError when two tensors would share a struct member or a macro.
    """
    inputs, outputs = _tensors(artifact)
    return environment().get_template("model/header.h.j2").render(
        banner=banner(artifact, f"{artifact.prefix}.h: the C interface of one neural network"),
        prefix=artifact.prefix,
        PREFIX=artifact.prefix.upper(),
        module=artifact.module,
        inputs=inputs,
        outputs=outputs,
        error_null=abi.ERROR_NULL,
        error_arguments=abi.ERROR_ARGUMENTS,
        workspace_size=artifact.workspace_size,
        spilled=[pool for pool in artifact.spilled if pool.size],
        workspace_align=artifact.workspace_align,
        constants_size=artifact.constants_size,
        state_size=artifact.state_size,
        states=[
            block_comment([f'"{s.name}" {s.type}: bytes {s.offset} to {s.offset + s.type.nbytes}'])
            for s in artifact.states
        ],
        pools=abi.caller_pools(artifact),
        externals=called_externals(artifact),
        devices=[
            (field, block_comment([context_text(d)]))
            for field, d in zip(
                context_fields(artifact.devices), artifact.devices, strict=True
            )
        ],
        images=[block_comment([image_text(artifact, image)]) for image in artifact.images],
        images_table=images_symbol(artifact),
        launched=launched(artifact),
        launched_table=launched_symbol(artifact),
        image_pool=abi.IMAGE_POOL,
        inflated_size=artifact.inflated_size,
        inflated_align=artifact.inflated_align,
        takes_buffer=abi.takes_buffer(artifact),
        takes_workspace=abi.takes_workspace(artifact),
        shared_workspace=artifact.common.workspace is not None,
        takes_state=abi.takes_state(artifact),
        io_in_workspace=artifact.io_in_workspace,
        maps=[
            {"side": side, "prototype": map_prototype(artifact, symbol, side)}
            for symbol, side, _ in abi.io_maps(artifact)
        ],
        run_prototype=run_prototype(artifact),
        reset_prototype=reset_prototype(artifact),
    )


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
