"""Selects the shipped board for this computer that uses the most instruction sets which its
processor has."""

from __future__ import annotations

from pathlib import Path

from crtexport.support.errors import CrtExportError

NAME = "native"
"""The name by which users select that board."""

_CPUINFO = Path("/proc/cpuinfo")
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_NEEDED = {
    "host_avx512": _V4 | {"avx512_vnni"}, "host_vnni": _V3 | {"avx_vnni"}, "host_avx2": _V3,
    "host": _V2,
}
"""Linux's names of the instructions that each board's code may use, the fastest board first."""


def native_board() -> str:
    """Returns the name of the board. Raises CrtExportError where none fits, or the processor can't
    be determined."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CrtExportError(
            f"the features of this computer's processor can't be read: {error.strerror}",
            location=str(_CPUINFO), hint="name a board: `crtexport boards` lists them",
        ) from error
    lines = [line.partition(":") for line in text.splitlines()]
    flags = [set(value.split()) for key, _, value in lines if key.strip() == "flags"]
    # A program may run on any of the processors, so it can use what all of them have.
    common = set.intersection(*flags) if flags else set()
    for name, needed in _NEEDED.items():
        if needed <= common:
            return name
    raise CrtExportError(
        "no board has code for this computer's processor, which is no x86-64-v2",
        location=NAME, hint="`crtexport boards` lists the boards that there are",
    )
