"""Selects the shipped board for this computer that uses the most instruction sets which its
processor has."""

from __future__ import annotations

from crtexport.support.errors import CrtExportError
from crtexport.support.this_processor import LEVELS, instructions

NAME = "native"
"""The name by which users select that board."""

_V3 = LEVELS["x86-64-v3"]
_NEEDED = {
    "host_avx512": LEVELS["x86-64-v4"] | {"avx512_vnni"}, "host_vnni": _V3 | {"avx_vnni"},
    "host_avx2": _V3, "host": LEVELS["x86-64-v2"],
}
"""Linux's names of the instructions that each board's code may use, the fastest board first."""


def native_board() -> str:
    """Returns the name of the board. Raises CrtExportError where none fits, or the processor can't
    be determined."""
    there = instructions()
    for name, needed in _NEEDED.items():
        if needed <= there:
            return name
    raise CrtExportError(
        "no board has code for this computer's processor, which is no x86-64-v2",
        location=NAME, hint="`crtexport boards` lists the boards that there are",
    )
