"""Device contexts: their names in the interface, and the hooks around their functions.

The hooks are those of TVM's C device API: ``int32_t TVMDevice<Kind><Verb>(void *context)``, which
returns 0 for success. ``run`` activates every device in the order of the contexts, opens a device
before each function that runs on it, closes it afterwards, and deactivates all in reverse order.

A device whose program is in an image has two more hooks: Load, which receives the program after the
device was opened, ``(void *context, const struct crt_device_image *image, const void *program)``,
and Launch, which runs a function of the program, ``(void *context, const struct crt_device_function
*function, const void *const *inputs, void *const *outputs)``. If a hook or a function returns
another code, open devices are closed, active ones deactivated, and ``run`` returns that code; codes
of hooks that fail in the meantime are lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from crtexport.artifact.model import Artifact, DeviceImage, ExternalFunction, every_call
from crtexport.artifact.symbols import c_identifier
from crtexport.ir.modules import Device
from crtexport.support.errors import CrtExportError

Verb = Literal["Activate", "Open", "Load", "Launch", "Close", "Deactivate"]
VERBS: tuple[Verb, ...] = ("Activate", "Open", "Close", "Deactivate")
"""The hooks of every device."""


def hook(device: Device, verb: Verb) -> str:
    """Returns the symbol of a hook: ``ethos-u`` and Open give ``TVMDeviceEthosUOpen``.

    Raises CrtExportError for a kind without letters and digits.
    """
    words = re.findall(r"[A-Za-z0-9]+", device.kind)
    if not words:
        raise CrtExportError("a device's kind needs letters or digits", location=device.kind)
    return f"TVMDevice{''.join(word[0].upper() + word[1:] for word in words)}{verb}"


def verbs(artifact: Artifact, device: int) -> tuple[Verb, ...]:
    """Returns the hooks that the code calls for a device, in their order."""
    more: list[Verb] = []
    if image_of(artifact, device) is not None:
        more.append("Load")
    if any(f.device == device for f in launched(artifact)):
        more.append("Launch")
    return (*VERBS[:2], *more, *VERBS[2:])


def all_hooks(artifact: Artifact) -> dict[str, Verb]:
    """Returns every hook that the code calls, by its symbol, in the order of devices and verbs."""
    return {
        hook(device, verb): verb
        for number, device in enumerate(artifact.devices) for verb in verbs(artifact, number)
    }


def image_of(artifact: Artifact, device: int) -> int | None:
    """Returns the number of the image of a device; None if it has none."""
    return next((n for n, i in enumerate(artifact.images) if i.device == device), None)


def launched(artifact: Artifact) -> tuple[ExternalFunction, ...]:
    """Returns the functions of device programs that are called: the rows of the table of functions.
    """
    return tuple(f for f in called_externals(artifact) if f.entry is not None)


def images_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the table of device programs."""
    return f"{artifact.prefix}_device_images"


def launched_symbol(artifact: Artifact) -> str:
    """Returns the symbol of the table of functions of device programs."""
    return f"{artifact.prefix}_device_functions"


def context_fields(devices: Sequence[Device]) -> tuple[str, ...]:
    """Returns the members of ``struct tvmgen_<m>_devices``: the kind, with as much of id and
    program as distinguishes the contexts.

    Raises CrtExportError if two contexts would have the same name.
    """
    kinds = Counter(c_identifier(d.kind) for d in devices)
    numbered = Counter((c_identifier(d.kind), d.id) for d in devices)
    fields: dict[str, Device] = {}
    for device in devices:
        field = c_identifier(device.kind)
        if kinds[field] > 1:
            same = numbered[field, device.id] > 1
            field = c_identifier(
                f"{device.kind} {device.id}" + (f" {device.program}" if same else "")
            )
        if field in fields:
            raise CrtExportError(
                f"two device contexts would both be called {field!r} in C",
                location=(device.kind, str(device.id), device.program),
                hint="give each program of a device a name of its own",
            )
        fields[field] = device
    return tuple(fields)


def context_text(device: Device) -> str:
    """Returns a device context as text for messages."""
    return f'"{device.kind}" {device.id}, program "{device.program}"'


def image_text(artifact: Artifact, image: DeviceImage) -> str:
    """Returns a program and its sizes as text for messages."""
    header = image.header
    sizes = f"{header.original_size} bytes, {header.stored_size} stored"
    return f"{context_text(artifact.devices[image.device])}: {sizes}"


def check_externals(artifact: Artifact) -> dict[str, ExternalFunction]:
    """Returns the external functions by symbol.

    Raises CrtExportError for a symbol that isn't an identifier of C or isn't unique, for an unknown
    device, and for a device on which no function runs.
    """
    functions: dict[str, ExternalFunction] = {}
    own = {f.symbol for f in artifact.functions}
    for function in artifact.externals:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", function.symbol):
            raise CrtExportError(
                "an external function's symbol must be an identifier of C",
                location=function.symbol,
            )
        if function.symbol in functions or function.symbol in own:
            raise CrtExportError("two functions have this symbol", location=function.symbol)
        if function.device is not None and not 0 <= function.device < len(artifact.devices):
            raise CrtExportError("the function's device is not there", location=function.symbol)
        if function.entry is not None and (
            function.device is None or image_of(artifact, function.device) is None
        ):
            raise CrtExportError("no program has the function", location=function.symbol)
        functions[function.symbol] = function
    used = {function.device for function in called_externals(artifact)}
    for number, device in enumerate(artifact.devices):
        if number not in used:
            raise CrtExportError(
                "nothing runs on this device", location=(device.kind, str(device.id)),
            )
    return functions


DECODER = "crt_image_open"
"""The function that makes a program available; the package contains its source."""


def needed_symbols(artifact: Artifact) -> tuple[str, ...]:
    """Returns the external functions and hooks that a model's code calls or registers."""
    functions = (f.symbol for f in called_externals(artifact) if f.entry is None)
    decoder = (DECODER,) if artifact.images else ()
    registered = (entry.symbol for entry in artifact.registry if entry.external)
    return (*functions, *all_hooks(artifact), *decoder, *registered)


def called_externals(artifact: Artifact) -> tuple[ExternalFunction, ...]:
    """Returns the external functions that are called."""
    symbols = {call.symbol for call in every_call(artifact.calls)}
    return tuple(f for f in artifact.externals if f.symbol in symbols)
