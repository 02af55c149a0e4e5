"""The cost of a float network and of its quantized one on a board, side by side."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from crtexport.firmware.board import Board
from crtexport.importers.formats import InputChoices
from crtexport.pipeline import driver
from crtexport.pipeline.options import ExportOptions
from crtexport.reports.bench import bench
from crtexport.reports.measure import MeasureSetting
from crtexport.support.errors import CrtExportError


class QuantizedCost(Struct, frozen=True):
    """``workspace``, ``buffers`` (inputs and outputs), ``constants`` and ``flash`` (the whole
    program's) are bytes, ``instructions`` those of an inference; the last two are measured in the
    board's emulator, None where that can't be."""

    workspace: int
    buffers: int
    constants: int
    flash: int | None = None
    instructions: int | None = None


class BoardCost(Struct, frozen=True):
    """``before`` is the float network's, ``after`` the quantized one's; ``problem``: the reason why
    something is missing, "" where nothing is."""

    board: str
    before: QuantizedCost | None
    after: QuantizedCost | None
    problem: str = ""


def compare(models: tuple[Path, Path], board: Board, choices: InputChoices) -> BoardCost:
    """Returns the costs of a float file and a quantized one on ``board``."""
    problems: list[str] = []
    fixed = replace(choices, dims={}, shapes={})  # in the new file
    before = _cost(models[0], board, choices, problems)
    after = _cost(models[1], board, fixed, problems)
    return BoardCost(board.name, before, after, "; ".join(dict.fromkeys(problems)))


def _cost(
    model: Path, board: Board, choices: InputChoices, problems: list[str]
) -> QuantizedCost | None:
    """Returns a network's cost, as far as it can be found; the rest goes to ``problems``."""
    options = ExportOptions(choices=choices)
    try:
        graph = driver.load(model, choices=choices)
        artifact = driver.prepare(graph, board, options).artifact
    except CrtExportError as error:
        problems.append(_sentence(error))
        return None
    tensors = (*artifact.inputs, *artifact.outputs)
    cost = QuantizedCost(
        artifact.workspace_total + artifact.state_size, sum(t.type.nbytes for t in tensors),
        artifact.constants_size,
    )
    try:
        measured = bench(MeasureSetting(graph, board, options))
    except CrtExportError as error:
        problems.append(_sentence(error))
        return cost
    return QuantizedCost(
        cost.workspace, cost.buffers, cost.constants, measured.flash_size, measured.second
    )


def _sentence(error: CrtExportError) -> str:
    return ": ".join((*error.location[1:], error.problem))
