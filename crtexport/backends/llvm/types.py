"""Types, literals, attributes and module-wide text of LLVM IR, independent of kernels and models.
"""

from __future__ import annotations

import functools
import re
import struct
from typing import assert_never

from msgspec import Struct, field

from crtexport.kir.language import Const, Scalar
from crtexport.support.errors import CrtExportError, printable
from crtexport.support.levels import LEVELS
from crtexport.support.target import Target

_HALF_CONVERSIONS = frozenset({
    "+f16c", "+fp16", "+fullfp16", "+vfp4", "+vfp4sp", "+vfp4d16", "+vfp4d16sp", "+fp-armv8",
    "+fp-armv8sp", "+fp-armv8d16", "+fp-armv8d16sp", "+mve.fp", "+zfhmin", "+zfh",
})
_VALUE, _DEFINED = re.compile(r"%\w+"), re.compile(r"(%\w+) = ")
_WINDOW = 1 << 20  # bytes that are escaped at once: each one takes as much memory as a pointer
_ESCAPED = tuple(
    chr(b) if 0x20 <= b < 0x7F and chr(b) not in '"\\' else f"\\{b:02X}" for b in range(256)
)


_I1, _INDEX = Scalar.I1, Scalar.INDEX


def value_type(scalar: Scalar, target: Target) -> str:
    """Returns the LLVM type of a value in a register."""
    return f"i{target.pointer_bits}" if scalar is _INDEX else _fixed_type(scalar)


@functools.cache
def _fixed_type(scalar: Scalar) -> str:
    """Returns the type of a scalar that is equally wide on all targets."""
    match scalar:
        case Scalar.I1:
            return "i1"
        case Scalar.I8 | Scalar.U8:
            return "i8"
        case Scalar.I16 | Scalar.U16 | Scalar.F16:
            return "i16"  # half is a storage format: conversions know its bits
        case Scalar.I32 | Scalar.U32:
            return "i32"
        case Scalar.I64:
            return "i64"
        case Scalar.F32:
            return "float"
        case Scalar.F64:
            return "double"
        case (
            Scalar.I8X16 | Scalar.I16X8 | Scalar.I32X4 | Scalar.F32X4
            | Scalar.I16X16 | Scalar.I32X8 | Scalar.F32X8
            | Scalar.I8X32 | Scalar.I32X16 | Scalar.F32X16
            | Scalar.I16X32 | Scalar.I32X32 | Scalar.F32X32
        ):
            return f"<{scalar.lanes} x {_fixed_type(scalar.lane)}>"
        case Scalar.INDEX:
            raise CrtExportError("an index is as wide as the target's pointers")
        case _:
            assert_never(scalar)


def storage_type(scalar: Scalar, target: Target) -> str:
    """Returns the LLVM type of an element in memory."""
    return "i8" if scalar is _I1 else value_type(scalar, target)


def bits_of(scalar: Scalar, target: Target) -> int:
    """Returns the width of an integer value."""
    if scalar is Scalar.I1:
        return 1
    return target.pointer_bits if scalar is Scalar.INDEX else 8 * scalar.itemsize


def literal(const: Const) -> str:
    """Returns the operand text of a constant; LLVM spells all floats as the bits of a double."""
    value, type_ = const.value, const.type
    if not type_.is_float:
        return ("true" if value else "false") if type_ is _I1 else str(int(value))
    if type_ is Scalar.F16:
        return str(struct.unpack("<h", struct.pack("<e", value))[0])
    if type_ is Scalar.F32:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def bytes_literal(data: bytes) -> str:
    """Returns ``c"…"`` with everything escaped that is not plain ASCII."""
    windows = (data[start : start + _WINDOW] for start in range(0, len(data), _WINDOW))
    text = "".join("".join(map(_ESCAPED.__getitem__, window)) for window in windows)
    return f'c"{text}"'


def quoted(text: str) -> str:
    """Returns a string in quotes, for names and attribute values."""
    return '"' + "".join(map(_ESCAPED.__getitem__, text.encode("utf-8"))) + '"'


def comment(text: str) -> str:
    """Returns ``text`` as one line of comment, with line breaks escaped."""
    return f"; {printable(text)}"


@functools.cache
def numbered(function: str) -> str:
    """Returns ``function``, a block on a line, with numbers for names of values: LLVM would make
    new ones of these wherever it puts the block. Declarations stay as they are."""
    head, brace, body = function.partition("{")
    names = {name: f"%{number}" for number, name in enumerate(_DEFINED.findall(body), 1)}
    return head + brace + _VALUE.sub(lambda value: names.get(value[0], value[0]), body)


def normalized_triple(target: Target) -> str:
    """Returns ``target.triple`` in the four-part form that LLVM takes.

    Arm's ``eabi`` becomes ``gnueabi``: the same ABI, but memory operations are called ``memcpy``
    and ``memset``, which every C library has, not ``__aeabi_memcpy``.
    """
    if not target.triple:
        raise CrtExportError(
            "for this processor there are C sources, no objects: LLVM doesn't have it",
            location=target.cpu, hint="export C sources: --emit c",
        )
    parts = target.triple.split("-")
    if len(parts) == 3 and parts[2].startswith(("eabi", "gnueabi", "elf")):
        parts.insert(2, "none")
        parts[1] = "unknown"
    if parts[0].startswith(("arm", "thumb")) and parts[-1].startswith("eabi"):
        parts[-1] = "gnu" + parts[-1]
    if parts[0].startswith(("arm", "thumb")) and target.float_abi and (
        (target.float_abi == "hard") != parts[-1].endswith("hf")
    ):
        raise CrtExportError(
            f"the float ABI is {target.float_abi}, but the triple says otherwise",
            location=target.triple,
            hint="triples of hard-float targets end in eabihf, those of soft-float targets in eabi",
        )
    return "-".join(parts)


def has_half_conversions(target: Target) -> bool:
    """Returns whether the processor converts between half and float."""
    return target.float_abi != "soft" and not _HALF_CONVERSIONS.isdisjoint(target.features)


class ModuleText(Struct):
    """The parts of a module outside of its functions: declarations, helper functions and metadata.

    All are kept in the order of their first use, so that equal input prints equal text.
    ``assembled``: the symbols of functions of instructions, by their types and bytes.
    """

    target: Target
    optimize: str
    declarations: dict[str, None] = field(default_factory=dict)
    helpers: dict[str, str] = field(default_factory=dict)
    assembled: dict[tuple[str, bytes], str] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.optimize not in LEVELS:
            raise CrtExportError(
                f"there is no optimization called {self.optimize}",
                hint=f"choose one of {', '.join(LEVELS)}",
            )

    def declare(self, line: str) -> None:
        """Adds a ``declare`` line once."""
        self.declarations.setdefault(line)

    def add_metadata(self, body: str) -> str:
        """Adds a node, whose ``{self}`` is its own name; returns the name."""
        name = f"!{len(self.metadata)}"
        self.metadata.append(f"{name} = {body.replace('{self}', name)}")
        return name

    def attributes(self) -> str:
        """Returns the attribute group ``#0`` of every defined function."""
        parts = ["nounwind"]
        # minsize takes hot loops apart that have no instructions of crtexport's own.
        parts += {"size": ["minsize", "optsize"], "compact": ["optsize"]}.get(self.optimize, [])
        parts.append(f'"target-cpu"={quoted(self.target.cpu)}')
        if self.target.features:
            parts.append(f'"target-features"={quoted(",".join(self.target.features))}')
        return f"attributes #0 = {{ {' '.join(parts)} }}"

    def text(self, name: str, header: tuple[str, ...], body: list[str]) -> str:
        """Returns the whole module around the definitions in ``body``; ``name`` ends as its file
        symbol."""
        flags = []
        if self.target.is_i386:  # callers align the stack less than LLVM assumes
            align = self.target.stack_align
            flags.append(self.add_metadata(f'!{{i32 1, !"override-stack-alignment", i32 {align}}}'))
        if self.target.abi:
            abi = quoted(self.target.abi)
            flags.append(self.add_metadata(f'!{{i32 1, !"target-abi", !{abi}}}'))
        lines = [comment(line) for line in header]
        lines += [f"source_filename = {quoted(name)}"]
        lines += [f"target triple = {quoted(normalized_triple(self.target))}", ""]
        lines += [*body, *self.helpers.values(), *self.declarations, "", self.attributes()]
        if flags:
            lines.append(f"!llvm.module.flags = !{{{', '.join(flags)}}}")
        return "\n".join([*lines, *self.metadata]) + "\n"
