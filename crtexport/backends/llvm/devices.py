"""Prints the tables of device programs, and the code that loads these into the devices."""

from __future__ import annotations

from crtexport.artifact import abi
from crtexport.artifact.contexts import (
    DECODER,
    image_of,
    images_symbol,
    launched,
    launched_symbol,
)
from crtexport.artifact.model import Artifact
from crtexport.backends.llvm.entry import main_arity
from crtexport.backends.llvm.tables import Tables
from crtexport.backends.llvm.types import ModuleText, comment, value_type
from crtexport.kir.language import Scalar

_IMAGE = "{ ptr, ptr, ptr, i32, i32, i32, i32, i32, i32 }"
"""``crt_device_image``: kind, program, image, id, compression, sizes, CRC, alignment."""
_FUNCTION = "{ ptr, ptr, i32, i32 }"
"""``crt_device_function``: name, image, number of inputs and outputs."""
_IMAGE_FIELD = 2


def print_device_tables(artifact: Artifact, module: ModuleText) -> list[str]:
    """Prints the tables of programs and functions, and the buffer for programs that the module
    owns."""
    tables = Tables(module)
    rows = []
    index = value_type(Scalar.INDEX, module.target)
    for constant in artifact.image_constants:
        type_ = f"[{constant.count} x i8], align {constant.align}"
        tables.lines += [
            comment(constant.comment), f"@{constant.symbol} = external hidden constant {type_}",
        ]
    for number, image in enumerate(artifact.images):
        device, header = artifact.devices[image.device], image.header
        own = f"{artifact.prefix}.device_image.{number}"
        numbers = (
            device.id, header.method.value, header.stored_size, header.original_size,
            header.original_crc, header.align,
        )
        rows.append(
            f"{_IMAGE} {{ ptr {tables.string(f'{own}.kind', device.kind)}, "
            f"ptr {tables.string(f'{own}.program', device.program)}, "
            f"ptr getelementptr inbounds (i8, ptr @{image.constant.symbol}, "
            f"{index} {image.offset}), {', '.join(f'i32 {n}' for n in numbers)} }}"
        )
    functions = []
    for number, function in enumerate(launched(artifact)):
        name = tables.string(f"{artifact.prefix}.launched.{number}", function.entry or "")
        functions.append(
            f"{_FUNCTION} {{ ptr {name}, ptr {_row(artifact, function.device or 0)}, "
            f"i32 {function.inputs}, i32 {function.outputs} }}"
        )
    for symbol, type_, values in (
        (images_symbol(artifact), _IMAGE, rows), (launched_symbol(artifact), _FUNCTION, functions),
    ):
        if values:
            tables.constant(
                symbol, f"[{len(values)} x {type_}]", f"[{', '.join(values)}]", addresses=True,
                linkage="",
            )
    if artifact.inflated_size and not abi.takes_buffer(artifact):
        symbol = _owned(artifact)
        tables.lines.append(
            f"@{symbol} = internal global [{artifact.inflated_size} x i8] zeroinitializer, "
            f'section ".bss.{symbol}", align {artifact.inflated_align}'
        )
    return tables.lines


def print_decoding(
    artifact: Artifact, module: ModuleText, device: int, fresh: tuple[str, str]
) -> list[str]:
    """Returns instructions that make the program of ``device`` available at ``%program``.

    ``fresh`` has the names of the image's address, which LLVM must not know because the image may
    be any distance away, and of the status.
    """
    number = image_of(artifact, device) or 0
    index = value_type(Scalar.INDEX, module.target)
    module.declare(f"declare i32 @{DECODER}(ptr, {index}, ptr, {index}, ptr)")
    place = (
        f"getelementptr inbounds ({_IMAGE}, ptr {_row(artifact, device)}, i32 0, "
        f"i32 {_IMAGE_FIELD})"
    )
    limit = artifact.images[number].header.image_size
    buffer = f"ptr {_buffer(artifact)}, {index} {artifact.inflated_size}"
    given = f"ptr {fresh[0]}, {index} {limit}, {buffer}, ptr %program"
    return [
        f"  {fresh[0]} = load volatile ptr, ptr {place}",
        f"  {fresh[1]} = call i32 @{DECODER}({given})",
    ]


def row_of(artifact: Artifact, device: int) -> str:
    """Returns the row of a device's program, as an operand."""
    return f"ptr {_row(artifact, device)}"


def function_row(artifact: Artifact, number: int) -> str:
    """Returns a row of the table of functions, as an operand."""
    count = len(launched(artifact))
    return (
        f"ptr getelementptr inbounds ([{count} x {_FUNCTION}], ptr @{launched_symbol(artifact)}, "
        f"i32 0, i32 {number})"
    )


def _row(artifact: Artifact, device: int) -> str:
    return (
        f"getelementptr inbounds ([{len(artifact.images)} x {_IMAGE}], "
        f"ptr @{images_symbol(artifact)}, i32 0, i32 {image_of(artifact, device) or 0})"
    )


def _owned(artifact: Artifact) -> str:
    return f"{artifact.prefix}.{abi.IMAGE_POOL}"


def _buffer(artifact: Artifact) -> str:
    """Returns the buffer into which programs are inflated."""
    if not artifact.inflated_size:
        return "null"
    if not abi.takes_buffer(artifact):
        return f"@{_owned(artifact)}"
    names = [name for name, _ in abi.caller_pools(artifact)]
    return f"%a{main_arity(artifact) - len(names) + names.index(abi.IMAGE_POOL)}"
