"""The instructions that the processor of this computer has, by Linux's names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crtexport.support.errors import CrtExportError

_CPUINFO = Path("/proc/cpuinfo")
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "ssse3", "sse4_1", "sse4_2"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""Instructions that code for these processors may have, by LLVM's names of them."""
_OF_LLVM = {
    "avxvnni": "avx_vnni", "avx512vnni": "avx512_vnni", "lzcnt": "abm", "sahf": "lahf_lm",
    "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1",
}
"""Names of features that are others in Linux."""


def instructions() -> frozenset[str]:
    """Returns what all processors of this computer have: a program may run on any of them. Raises
    CrtExportError where that can't be determined."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CrtExportError(
            f"the features of this computer's processor can't be read: {error.strerror}",
            location=str(_CPUINFO), hint="name a board: `crtexport boards` lists them",
        ) from error
    lines = [line.partition(":") for line in text.splitlines()]
    flags = [set(value.split()) for key, _, value in lines if key.strip() == "flags"]
    return frozenset(set.intersection(*flags) if flags else ())


def check_processor(cpu: str, features: Iterable[str], location: str) -> None:
    """Raises CrtExportError, naming ``location``, where code for an x86-64 processor may use
    instructions that this computer's doesn't have; ``cpu`` and ``features`` are LLVM's names. Does
    nothing where that isn't known."""
    known = _V4 | frozenset(_OF_LLVM.values())
    named = (feature[1:] for feature in features if feature.startswith("+"))
    needed = LEVELS.get(cpu, frozenset()) | {_OF_LLVM.get(name, name) for name in named}
    try:
        there = instructions()
    except CrtExportError:
        return
    missing = sorted(needed & known - there)
    if there and missing:
        raise CrtExportError(
            f"the code uses instructions that this computer's processor doesn't have: "
            f"{', '.join(missing)}", location=location,
            hint="export for the board `native`, which is what this computer can run",
        )
