"""Prints constants as arrays: numbers as decimals, packed words in hexadecimal."""

from __future__ import annotations

from crtexport.artifact.model import Constant
from crtexport.backends.c.literals import (
    STORAGE,
    array_literals,
    layer_comment,
    word_literals,
    wrapped_blocks,
)
from crtexport.kir.language import Scalar
from crtexport.support.errors import CrtExportError

_BITS = {Scalar.U8: "uint8_t", Scalar.U16: "uint16_t", Scalar.I32: "uint32_t",
         Scalar.U32: "uint32_t"}
"""The C types of elements that are printed in hexadecimal, because their bits say more than their
value."""

_BLOCK = 1 << 16
"""The number of elements that are converted to text at a time."""


def element_type(constant: Constant) -> str:
    """Returns the C type of the array's elements."""
    if constant.words and constant.dtype in _BITS:
        return _BITS[constant.dtype]
    return STORAGE[constant.dtype]


def declared(constant: Constant) -> str:
    """Returns the declaration of the array, without linkage and semicolon."""
    return f"const {element_type(constant)} {constant.symbol}[{max(1, constant.count)}]"


def definition(constant: Constant, linkage: str, attribute: str) -> str:
    """Returns the definition of the array, after a comment that names its layers.

    Raises CrtExportError if the constant's data doesn't have its number of elements.
    """
    size = constant.dtype.itemsize
    if constant.data.nbytes != constant.count * size:
        raise CrtExportError(
            f"the constant has {constant.data.nbytes / size:g} elements where {constant.count} are "
            "announced", location=constant.symbol,
        )
    bits = constant.words and constant.dtype in _BITS
    literals = word_literals if bits else array_literals
    blocks = (literals(piece, constant.dtype) for piece in constant.data.chunks(_BLOCK * size))
    comment = [line for line in (constant.comment, constant.note) if line]
    return "\n".join([
        *([layer_comment(comment)] if comment else []),
        f"CRT_ALIGNED({max(constant.align, constant.dtype.itemsize)}) {attribute}",
        f"{linkage} {declared(constant)} = {{",
        wrapped_blocks(blocks if constant.count else [["0"]], constant.row),
        "};",
    ])
