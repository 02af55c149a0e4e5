"""Decides for each external function of a graph whether it can be exported to the C runtime, and
says why."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from crtexport.devices.image import stored_image
from crtexport.firmware.board_schema import Board
from crtexport.firmware.elf_abi import ElfAbi, read_abi
from crtexport.firmware.ethos_u import for_networks
from crtexport.firmware.external import external_files
from crtexport.ir.external import functions_of
from crtexport.ir.graph import Graph
from crtexport.ir.modules import Device, DeviceProgram, ExternalModule
from crtexport.support.errors import CrtExportError

_HOW = {
    "c-source": "compiled with the code", "object": "linked as it is",
    "device-image": "a program of a device", "ethos-u": "the firmware's driver runs its commands",
}


class Verdict(Struct, frozen=True):
    """The decision about an external function: ``reason`` says how it is exported, or why it can't
    be. ``device`` is the one that runs it, None for the processor."""

    function: str
    module: str
    kind: str
    device: Device | None
    exportable: bool
    reason: str


def classify(graph: Graph, board: Board) -> tuple[Verdict, ...]:
    """Returns a verdict on each function of the graph's modules: those without a device first, then
    sorted by device. Raises CrtExportError if modules contradict each other; other problems are
    reasons of verdicts."""
    functions_of(graph)
    ours = None
    if any(module.kind == "object" for module in graph.modules):
        # Imported here, since only objects have to fit the ABI of LLVM's code.
        from crtexport.backends.llvm.compile import empty_object  # noqa: PLC0415

        ours = read_abi(empty_object(board.target), board.name)
    found = [
        verdict for module in graph.modules
        for verdict in _of_module(module, ours, _of_commands(module, graph, board))
    ]
    return tuple(sorted(found, key=lambda v: _order(v.device)))


def _order(device: Device | None) -> tuple[str, int, str]:
    return ("", -1, "") if device is None else (device.kind, device.id, device.program)


def _of_commands(module: ExternalModule, graph: Graph, board: Board) -> str:
    """Returns the problem with an Ethos-U's commands on this board, if there is one."""
    if module.kind == "ethos-u":
        try:
            for_networks(board, [graph], None, fixed=False)
        except CrtExportError as error:
            return _words(error)
    return ""


def _of_module(module: ExternalModule, ours: ElfAbi | None, problem: str) -> Iterator[Verdict]:
    try:
        external_files([module], ours)
    except CrtExportError as error:
        problem = _words(error)
    reasons = {program.device: _of_program(program) for program in module.programs}
    for function in module.functions:
        exportable, reason = not problem, problem
        if not problem and function.device in reasons:
            exportable, reason = reasons[function.device]
        elif not problem:
            reason = _HOW[module.kind]
            if function.const_vars:
                names = ", ".join(variable.name for variable in function.const_vars)
                reason += f"; given static constants: {names}"
        yield Verdict(
            function.symbol, module.name, module.kind, function.device, exportable, reason
        )


def _of_program(program: DeviceProgram) -> tuple[bool, str]:
    """Returns whether a device program can be exported, and the reason for the verdict."""
    try:
        header = stored_image(program.file, program.compression, program.align).header
    except CrtExportError as error:
        return False, _words(error)
    if not header.compressed:
        return True, f"launched by the device; {header.original_size:,} bytes used in place"
    return True, (
        f"launched by the device; {header.stored_size:,} bytes ({header.method.name.lower()}), "
        f"inflated to {header.original_size:,} when it is opened"
    )


def _words(error: CrtExportError) -> str:
    """Returns file and problem; the module is clear from the context."""
    where = [part for part in error.location if not part.startswith("module ")]
    return ": ".join([*where, error.problem])
