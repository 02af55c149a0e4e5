"""Reads chips from the description of a CMSIS pack (.pdsc), which isn't trusted."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from msgspec import Struct

from crtexport.firmware.board_schema import Memory
from crtexport.firmware.chips.chip import Chip, arm_family, plain_name
from crtexport.support.errors import CrtExportError

_LARGEST = 64 << 20  # bytes; the largest pack's description has some ten million
_GROUPS = ("family", "subFamily", "device", "variant")
_NAMES = {"device": "Dname", "variant": "Dvariant"}
_FPU = {"": "none", "0": "none", "NO_FPU": "none", "DP_FPU": "double"}


class _Inherited(Struct, frozen=True):
    """Properties that an element inherits from groups: attributes by processor, and memories."""

    processors: dict[str, dict[str, str]]
    memories: tuple[dict[str, str], ...]


def read_pack(path: Path, device: str | None, core: str | None = None) -> Chip:
    """Returns the chip ``device`` of a pack; ``core`` is the Pname of one of several processors.

    Raises CrtExportError for files that aren't descriptions of packs, and for unknown names; the
    error suggests similar ones.
    """
    devices = dict(_devices(_parsed(path), _Inherited({}, ())))
    if not devices:
        raise CrtExportError("the pack describes no devices", location=str(path))
    if device is None and len(devices) == 1:
        (device,) = devices
    if device is None or device not in devices:
        near = difflib.get_close_matches(device or "", devices, n=5, cutoff=0.4)
        near = near or sorted(devices)[:5]
        raise CrtExportError(
            f"the pack has no device {device!r}" if device else "the pack has several devices",
            location=str(path),
            hint=f"write --device with one of its {len(devices)}: {', '.join(near)}"
            + (", …" if len(near) < len(devices) else ""),
        )
    processor, name = _processor(devices[device], core, path)
    return Chip(device, processor.get("Dcore", ""), _family(processor),
                _memories(devices[device].memories, name, path))


def _parsed(path: Path) -> ET.Element:
    """Returns the root element. Raises CrtExportError for other files, and for a DOCTYPE: only it
    could define entities, which can expand to gigabytes."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise CrtExportError("the file is too large for a pack's description",
                                 location=str(path))
        text = content.decode("utf-8-sig")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise CrtExportError("a pack's description has no DOCTYPE", location=str(path))
        root = ET.fromstring(text)  # noqa: S314  (without a DOCTYPE there are no entities)
    except OSError as error:
        raise CrtExportError(f"the pack can't be read: {error.strerror}",
                             location=str(path)) from error
    except (UnicodeDecodeError, ET.ParseError) as error:
        raise CrtExportError(f"this is no XML: {error}", location=str(path)) from error
    if root.tag != "package":
        raise CrtExportError("this is XML, but no description of a CMSIS pack", location=str(path))
    return root


def _devices(element: ET.Element, above: _Inherited) -> Iterator[tuple[str, _Inherited]]:
    """Yields the devices and variants in an element, with all attributes that apply to them."""
    for child in element:
        if child.tag == "devices":
            yield from _devices(child, above)
        elif child.tag in _GROUPS:
            processors = {name: dict(each) for name, each in above.processors.items()}
            for one in child.findall("processor"):
                name = one.get("Pname", "")
                processors[name] = {**processors.get(name, {}), **one.attrib}
            own = tuple(dict(one.attrib) for one in child.findall("memory"))
            names = {_called(one) for one in own}
            kept = tuple(one for one in above.memories if _called(one) not in names)
            here = _Inherited(processors, (*kept, *own))
            if child.tag in _NAMES and _NAMES[child.tag] in child.attrib:
                yield child.attrib[_NAMES[child.tag]], here
            yield from _devices(child, here)


def _called(memory: dict[str, str]) -> tuple[str, str]:
    return memory.get("name") or memory.get("id", ""), memory.get("Pname", "")


def _processor(
    inherited: _Inherited, core: str | None, path: Path
) -> tuple[dict[str, str], str]:
    """Returns the attributes of the processor ``core`` and its name ("" if there is only one)."""
    # Attributes that hold for all processors have no name.
    shared = inherited.processors.get("", {})
    named = {name: {**shared, **each} for name, each in inherited.processors.items() if name}
    if not named:
        return shared, ""
    if core is None and len(named) == 1:
        (core,) = named
    if core is None or core not in named:
        raise CrtExportError("the device has several processors", location=(str(path), core or ""),
                             hint=f"--core takes one of {', '.join(sorted(named))}")
    return named[core], core


def _family(processor: dict[str, str]) -> str:
    core = processor.get("Dcore", "").lower()
    fpu = _FPU.get(processor.get("Dfpu", ""), "single")
    # Packs state a missing FPU explicitly; before 1.4.2 they say nothing.
    dsp = processor.get("Ddsp", "DSP") != "NO_DSP"
    if not core.startswith("cortex-"):
        return ""
    if core in ("cortex-m55", "cortex-m85") and processor.get("Dmve", "") == "NO_MVE":
        return ""
    return arm_family(core.removeprefix("cortex-"), fpu=fpu, dsp=dsp)


def _memories(
    listed: tuple[dict[str, str], ...], core: str, path: Path
) -> dict[str, Memory]:
    """Returns the memories of a processor by name. ``flash`` is the one from which it starts,
    ``ram`` the largest writable one among those that are enabled by default."""
    entries = []
    for one in listed:
        if one.get("Pname", core) != core:
            continue
        try:
            memory = Memory(int(one.get("start", ""), 0), int(one.get("size", ""), 0))
        except ValueError as error:
            raise CrtExportError("a memory without start or size",
                                 location=(str(path), _called(one)[0])) from error
        entries.append((one, memory))
    usual = [entry for entry in entries if entry[0].get("default") in ("1", "true")] or entries
    fixed = [one for one in usual if not _writable(one[0])]
    startup = [one for one in fixed if one[0].get("startup") in ("1", "true")]
    writable = sorted((one for one in usual if _writable(one[0])), key=lambda one: one[1].size)
    roles = {"flash": (startup or fixed)[:1], "ram": writable[-1:]}
    found = {role: chosen[0][1] for role, chosen in roles.items() if chosen}
    for one, memory in entries:
        if memory not in found.values() and not _overlaps(memory, found):
            found[plain_name(_called(one)[0], found)] = memory
    return found


def _writable(memory: dict[str, str]) -> bool:
    if "access" in memory:
        return "w" in memory["access"]
    return memory.get("id", "").startswith("IRAM")


def _overlaps(memory: Memory, other_memories: dict[str, Memory]) -> bool:
    """Returns whether a memory shares addresses with another: vendors also list parts of memories
    as memories."""
    return any(memory.origin < one.origin + one.size and one.origin < memory.origin + memory.size
               for one in other_memories.values())
