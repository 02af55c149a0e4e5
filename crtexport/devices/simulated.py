"""The simulated device of ``templates/devices``, for programs that run without real ones."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from crtexport.devices.runtime import DEVICE_HEADERS, device_file
from crtexport.errors import CrtExportError

HEADERS = ("crt_simulated.h", *DEVICE_HEADERS)
_PROGRAM = struct.Struct("<4sI")
_FUNCTION = struct.Struct("<24sII")


def headers() -> dict[str, bytes]:
    """The headers that the sources include, by name."""
    return {name: device_file(name) for name in HEADERS}


def program(functions: Mapping[str, tuple[int, bytes]], tail: bytes = b"") -> bytes:
    """A program for the simulated device, as ``crt_simulated.h`` describes it.

    ``functions``: by name, how many bytes of its input a function looks up in a table of 256, and
    the table. ``tail`` is appended; the device doesn't read it.
    """
    at = _PROGRAM.size + _FUNCTION.size * len(functions)
    head, tables = _PROGRAM.pack(b"CRTS", len(functions)), b""
    for name, (count, table) in functions.items():
        if len(table) != 256 or len(name.encode()) > 23:
            raise CrtExportError("the simulated device has tables of 256 bytes, names of 23",
                                 location=name)
        head += _FUNCTION.pack(name.encode(), count, at + len(tables))
        tables += table
    return head + tables + tail


def sources(activating: Iterable[str]) -> dict[str, str]:
    """C sources, by name, with hooks for all kinds of devices whose Activate hooks are named.

    They include the headers.
    """
    kinds = dict.fromkeys(
        hook.removeprefix("TVMDevice").removesuffix("Activate") for hook in activating
    )
    if not kinds:
        return {}
    hooks = "".join(f"CRT_SIMULATED_DEVICE({kind})\n" for kind in kinds)
    return {
        "crt_simulated.c": device_file("crt_simulated.c").decode(),
        "crt_simulated_devices.c": f'#include "{HEADERS[0]}"\n\n{hooks}',
    }
