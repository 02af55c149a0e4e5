"""The build systems that libraries are written for."""

from __future__ import annotations

from msgspec import Struct


class BuildFormat(Struct, frozen=True):
    """Places in a library, as folders of it. ``what`` it is, ``{name}`` being the library's.
    ``objects`` is None where the build system compiles everything itself. ``longest``: the
    characters that the system allows a name beside what the format adds; None for any number.
    """

    name: str
    what: str
    headers: str
    sources: str
    objects: str | None
    example: str
    longest: int | None = None


FORMATS = {one.name: one for one in (
    BuildFormat(
        "cmake", "a CMake project with the target crtexport::{name}",
        "include", "src", "lib", "example",
    ),
    BuildFormat("arduino", "an Arduino library", "src", "src", None, "examples/run", longest=53),
    BuildFormat("platformio", "a PlatformIO library", "include", "src", None, "examples/run/src"),
    BuildFormat("esp-idf", "an ESP-IDF component", "include", "src", None, "examples/run/main"),
    BuildFormat("zephyr", "a Zephyr module", "include", "src", None, "samples/run/src"),
    BuildFormat("cmsis-pack", "a CMSIS pack", "include", "src", "lib", "example", longest=32),
    BuildFormat(
        "mlperf-tiny", "the submitter's part of MLPerf Tiny", "include", "src", "lib", "test",
    ),
)}
"""By name."""
