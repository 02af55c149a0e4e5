"""Device contexts: what they are called in the interface, and the hooks around their functions.

The hooks are those of TVM's C device API: ``int32_t TVMDevice<Kind><Verb>(void *context)``, 0 for
success. ``run`` activates every device in the order of the contexts, opens a device before each
function that runs on it, closes it afterwards, and deactivates all in reverse. Where a hook or a
function returns another code, what is open is closed, what is active is deactivated, and that code
is what ``run`` returns; codes of hooks that fail while this happens are lost to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from crtexport.artifact.model import Artifact, ExternalFunction, every_call
from crtexport.artifact.symbols import c_identifier
from crtexport.errors import CrtExportError
from crtexport.ir.modules import Device

Verb = Literal["Activate", "Open", "Close", "Deactivate"]
VERBS: tuple[Verb, ...] = ("Activate", "Open", "Close", "Deactivate")


def hook(device: Device, verb: Verb) -> str:
    """The symbol of a hook: ``ethos-u`` and Open give ``TVMDeviceEthosUOpen``.

    Raises CrtExportError for a kind without letters and digits.
    """
    words = re.findall(r"[A-Za-z0-9]+", device.kind)
    if not words:
        raise CrtExportError("a device's kind needs letters or digits", location=device.kind)
    return f"TVMDevice{''.join(word[0].upper() + word[1:] for word in words)}{verb}"


def context_fields(devices: Sequence[Device]) -> tuple[str, ...]:
    """The members of ``struct tvmgen_<m>_devices``: the kind, and as much of id and program as
    tells the contexts apart.

    Raises CrtExportError when two contexts would be one member.
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


def check_externals(artifact: Artifact) -> dict[str, ExternalFunction]:
    """The external functions by symbol.

    Raises CrtExportError for a symbol that isn't an identifier of C or that is there twice, for a
    device that isn't there, and for one on which nothing runs.
    """
    found: dict[str, ExternalFunction] = {}
    own = {f.symbol for f in artifact.functions}
    for function in artifact.externals:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", function.symbol):
            raise CrtExportError(
                "an external function's symbol must be an identifier of C",
                location=function.symbol,
            )
        if function.symbol in found or function.symbol in own:
            raise CrtExportError("two functions have this symbol", location=function.symbol)
        if function.device is not None and not 0 <= function.device < len(artifact.devices):
            raise CrtExportError("the function's device is not there", location=function.symbol)
        found[function.symbol] = function
    used = {function.device for function in called_externals(artifact)}
    for number, device in enumerate(artifact.devices):
        if number not in used:
            raise CrtExportError(
                "nothing runs on this device", location=(device.kind, str(device.id)),
            )
    return found


def needed_symbols(artifact: Artifact) -> tuple[str, ...]:
    """The external functions and hooks that a model's code calls."""
    hooks = dict.fromkeys(hook(d, verb) for d in artifact.devices for verb in VERBS)
    return (*(f.symbol for f in called_externals(artifact)), *hooks)


def called_externals(artifact: Artifact) -> tuple[ExternalFunction, ...]:
    """The external functions that the calls reach."""
    symbols = {call.symbol for call in every_call(artifact.calls)}
    return tuple(f for f in artifact.externals if f.symbol in symbols)
