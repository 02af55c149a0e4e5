"""The simulated device of ``templates/devices``, for tests without accelerator hardware."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from crtexport.devices.runtime import DEVICE_HEADERS, device_file
from crtexport.support.errors import CrtExportError

HEADERS = ("crt_simulated.h", *DEVICE_HEADERS)
_DRIVEN = "EthosU"
"""The kind of device that its driver's function runs; there is no simulated one."""
_PROGRAM = struct.Struct("<4sI")
_FUNCTION = struct.Struct("<24sII")


def headers() -> dict[str, bytes]:
    """Returns the headers that the sources include, by name."""
    return {name: device_file(name) for name in HEADERS}


def program(functions: Mapping[str, tuple[int, bytes]], tail: bytes = b"") -> bytes:
    """Returns a program for the simulated device, as ``crt_simulated.h`` describes it.

    ``functions``: by name, the number of input bytes that a function looks up in a table of 256,
    and the table. ``tail`` is appended; the device doesn't read it.
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


def sources(activating: Collection[str], device_code: Iterable[Path] = ()) -> dict[str, str]:
    """Returns C sources, by name, with hooks for all kinds of devices whose Activate hooks are
    named.

    They include the headers. ``device_code`` are sources of the user's, which are added; where they
    have the hooks of a kind, no simulated device does. Raises CrtExportError for one that can't be
    read or is no C source, and where a kind has no simulated device but needs code.
    """
    texts = _texts(device_code)
    kinds = [
        hook.removeprefix("TVMDevice").removesuffix("Activate")
        for hook in dict.fromkeys(activating)
        if not any(re.search(rf"\b{hook}\b", text) for text in texts.values())
    ]
    if _DRIVEN in kinds:
        raise CrtExportError(
            "the model runs on an Ethos-U, which is not here",
            hint="check results with the model from before Vela, or give C source that stands in "
            "for the driver with --device-code",
        )
    if not kinds:
        return texts
    hooks = "".join(f"CRT_SIMULATED_DEVICE({kind})\n" for kind in kinds)
    return texts | {
        "crt_simulated.c": device_file("crt_simulated.c").decode(),
        "crt_simulated_devices.c": f'#include "{HEADERS[0]}"\n\n{hooks}',
    }


def _texts(paths: Iterable[Path]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in paths:
        if path.suffix != ".c" or path.name in texts:
            raise CrtExportError(
                "code for devices is C source (*.c), each file of a name of its own",
                location=str(path),
            )
        try:
            texts[path.name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CrtExportError(
                f"the code for devices can't be read ({error})", location=str(path)
            ) from error
    return texts
