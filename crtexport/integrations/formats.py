"""The build systems that libraries are written for."""

from __future__ import annotations

from msgspec import Struct


class Format(Struct, frozen=True):
    """Places in a library, as folders of it. ``objects`` is None where the build system compiles
    everything itself. ``next_step`` says how the example is built, ``{name}`` being the library's,
    and ``next_elsewhere`` what is done with objects that don't run on this computer. ``longest``:
    the characters that the system allows a name beside what the format adds; None for any number.
    """

    name: str
    what: str
    headers: str
    sources: str
    objects: str | None
    example: str
    next_step: str
    next_elsewhere: str = ""
    longest: int | None = None


FORMATS = {one.name: one for one in (
    Format(
        "cmake", "a CMake project with the target crtexport::{name}",
        "include", "src", "lib", "example",
        "cmake --preset example && cmake --build --preset example && ctest --preset example",
        "cmake --preset board && cmake --build --preset board",
    ),
    Format(
        "arduino", "an Arduino library",
        "src", "src", None, "examples/run",
        "move the folder to Arduino's libraries, or: arduino-cli compile --library . examples/run",
        longest=53,
    ),
    Format(
        "platformio", "a PlatformIO library",
        "include", "src", None, "examples/run/src",
        "pio run -d examples/run",
    ),
    Format(
        "esp-idf", "an ESP-IDF component",
        "include", "src", None, "examples/run/main",
        "idf.py -C examples/run build flash monitor",
    ),
    Format(
        "zephyr", "a module of Zephyr",
        "include", "src", None, "samples/run/src",
        "west build -b BOARD samples/run, then west flash",
    ),
    Format(
        "cmsis-pack", "a CMSIS pack's folder with its description",
        "include", "src", "lib", "example",
        "name Crtexport.{name}.clayer.yml under layers of a csolution project; elsewhere: "
        "cpackget add Crtexport.{name}.pdsc, then choose the component crtexport {name}",
        "name Crtexport.{name}.clayer.yml under layers of a csolution project; elsewhere: "
        "cpackget add Crtexport.{name}.pdsc, then choose the component crtexport {name}",
        longest=32,
    ),
    Format(
        "mlperf-tiny", "the submitter's part of MLPerf Tiny",
        "include", "src", "lib", "test",
        "cmake -B build -DMLPERF_TINY=PATH/TO/tiny/benchmark && cmake --build build",
        "cmake -B build --toolchain cmake/toolchain.cmake -DMLPERF_TINY=PATH/TO/tiny/benchmark "
        "&& cmake --build build",
    ),
)}
"""By name."""
