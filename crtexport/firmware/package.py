"""Turns an open package into the parts of a firmware, and finds the board that it is for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import asdict, replace

from crtexport.devices import simulated
from crtexport.firmware.board import load_board
from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.board_schema import Board, QemuRunner
from crtexport.firmware.parts import FeedPart, FirmwareParts, TensorPart
from crtexport.mlf.reader import Package, PackageTensor
from crtexport.support.errors import CrtExportError


def parts_from_package(package: Package, device_code: Sequence[Path] = ()) -> FirmwareParts:
    """Returns the parts of a firmware for the models in ``package``, or for the chosen one.

    For each kind of device that their code uses there is a simulated device, unless the C sources
    ``device_code`` have its hooks. Raises CrtExportError for a package without models, and for one
    of another exporter, whose metadata lacks facts about its tensors.
    """
    if not package.modules:
        raise CrtExportError("there is no model in the package", location=str(package.path))
    models = {name: _model(package.select(name)) for name in package.modules}
    first, *others = (models[chosen.module] for chosen in package.each)
    sections = list(package.section.modules.values()) if package.section else []
    return replace(
        first,
        sources=package.sources | simulated.sources(
            [device.hooks[0] for section in sections for device in section.devices], device_code
        ),
        objects=package.objects,
        runtime_headers=package.runtime_headers | (
            simulated.headers() if any(section.externals for section in sections) else {}
        ),
        libraries=tuple(
            dict.fromkeys(library for section in sections for library in section.libraries)
        ),
        others=tuple(others),
        headers={f"tvmgen_{name}.h": model.header for name, model in models.items()},
    )


def _model(package: Package) -> FirmwareParts:
    """Returns the chosen model of ``package``, without files."""
    section, header = package.described, package.header
    if header is None:
        raise CrtExportError("the package has no header", location=str(package.path))
    return FirmwareParts(
        module=package.module,
        inputs=tuple(_tensor(package, tensor) for tensor in package.inputs),
        outputs=tuple(_tensor(package, tensor) for tensor in package.outputs),
        header=header,
        io_in_workspace=section.io == "workspace",
        feed=None if section.feed is None else FeedPart(
            section.feed.input, section.feed.rows, section.feed.row_bytes, section.feed.hop
        ),
        workspace_caller=section.workspace.owner == "caller",
        spilled=tuple((pool.memory, pool.bytes) for pool in section.workspace.spilled),
        workspace_size=section.workspace.bytes,
        state_size=section.state.bytes,
        workspace_align=section.workspace.align,
        optimize=section.optimize or "balanced",
        image_buffer=section.caller_buffer,
        devices=tuple(d.field for d in section.devices),
    )


def board_from_package(package: Package) -> Board:
    """Returns the board that is stored in ``package``. Its commands aren't to be trusted: whoever
    made the package chose them. Raises CrtExportError if the package has none."""
    data = package.board_data
    if data is None:
        raise CrtExportError(
            "the package's metadata names no board", location=str(package.path),
            hint="packages that crtexport wrote do",
        )
    return board_from_data(data, f"{package.path}: board")


def board_for(package: Package, board: Board | None = None, *, trusted: bool = False) -> Board:
    """Returns the board that firmware of ``package`` is built for and run on.

    Memories are those that the package was exported for. The programs that are started on this
    computer, toolchain and runner, are those of ``board``, else of the installed board of that
    name, and the package's own only if it is ``trusted``. Raises CrtExportError for a board that
    isn't installed, and for one of another processor.
    """
    recorded = board_from_package(package)
    if board is None and trusted:
        return recorded
    found = board if board is not None else _installed(package, recorded)
    for what, theirs, ours in _differences(recorded, found):
        raise CrtExportError(
            f"the package is for another {what} than the board {found.name}: {theirs}, not {ours}",
            location=str(package.path), hint=_choice(recorded) if board is None else None,
        )
    cpu = replace(recorded.cpu, cflags=found.cpu.cflags)
    return replace(
        recorded, cpu=cpu, toolchain=found.toolchain, runner=found.runner, console=found.console,
        counter=found.counter, zephyr=found.zephyr, flashing=found.flashing,
    )


def _installed(package: Package, packaged: Board) -> Board:
    try:
        return load_board(packaged.name)
    except CrtExportError as error:
        raise CrtExportError(
            f"the package is for the board {packaged.name!r}, which can't be used here: "
            f"{error.problem}",
            location=str(package.path), hint=_choice(packaged),
        ) from error


def _choice(packaged: Board) -> str:
    """Returns a hint for a board that only the package describes."""
    tools = packaged.toolchain
    words = [*tools.compiler, *packaged.cpu.cflags, *tools.cflags, *tools.ldflags, *tools.libraries]
    commands = [shlex.join(words)]
    if isinstance(packaged.runner, QemuRunner):
        commands.append(shlex.join(packaged.runner.command))
    return (
        "name the board's file with --board FILE; or, if you trust the package's author, add "
        f"--trust-package, which starts: {' and '.join(commands)}"
    )


def _differences(packaged: Board, installed: Board) -> Iterator[tuple[str, object, object]]:
    """Yields (property, the package's value, the board's value) for each property on which code
    depends, and which differs."""
    yield from _unequal("architecture", packaged.architecture, installed.architecture)
    theirs, ours = asdict(packaged.cpu), asdict(installed.cpu)
    for key in theirs:
        if key != "cflags":
            yield from _unequal(f"cpu: {key}", theirs[key], ours[key])


def _unequal(what: str, theirs: object, ours: object) -> Iterator[tuple[str, object, object]]:
    if theirs != ours:
        yield what, _shown(theirs), _shown(ours)


def _shown(value: object) -> object:
    return " ".join(value) or "none" if isinstance(value, tuple) else value or "none"


def _tensor(package: Package, tensor: PackageTensor) -> TensorPart:
    found = package.interface(tensor)
    return TensorPart(found.name, found.field, found.type.dtype, found.type.shape)
