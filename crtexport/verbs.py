"""The verbs that only inspect, convert or measure, as functions; others have their own modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tarfile import is_tarfile
from typing import Any, Unpack

from crtexport.firmware.board import Board, list_boards
from crtexport.firmware.waiting import DEFAULT_TIMEOUT
from crtexport.importers import crtjson
from crtexport.importers.files import data_files
from crtexport.importers.formats import NO_CHOICES, InputChoices
from crtexport.ir.graph import Graph
from crtexport.mlf.arrays import Array
from crtexport.mlf.reader import Package, open_package
from crtexport.mlf.unpack import unpack_for_build
from crtexport.pipeline import driver
from crtexport.pipeline.options import ExportChanges, ExportOptions
from crtexport.reports import bench as benches
from crtexport.reports import chart, collect, difference, figures, packages, plans
from crtexport.reports.difference import Difference
from crtexport.reports.figures import Report
from crtexport.reports.host import HostBench, bench_host
from crtexport.reports.installed import Installed, installed
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.page import file as page_file
from crtexport.reports.plans import Plans
from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.claims import Claims


def boards() -> dict[str, Board]:
    """Returns the boards that are installed, and those of ``CRTEXPORT_BOARD_PATH``, by name."""
    return {board.name: board for board in list_boards()}


def inspect(package: Path | str) -> Package:
    """Opens a package from crtexport or another exporter, to read its metadata and files.

    Files are read on demand. For models, see :func:`crtexport.stage`. Raises CrtExportError for
    files that are no packages, and if the contents don't match the hashes in the metadata.
    """
    return open_package(Path(package))


def unpack(package: Path | str, folder: Path | str, *, force: bool = False) -> tuple[Path, ...]:
    """Writes a package's ``include/``, ``src/`` and ``lib/`` into ``folder``; returns the files.

    Either all files are written or none; files that stay the same are not touched. Raises
    CrtExportError if a file is in the way that crtexport didn't write, or that was changed since;
    ``force`` replaces it.
    """
    claims = Claims()
    claims.folder("folder", Path(folder))
    return unpack_for_build(open_package(Path(package)), Path(folder), force=force)


def convert(
    model: Path | str, output: Path | str, *, allow_outside: bool = False,
    choices: InputChoices = NO_CHOICES, force: bool = False,
) -> Path:
    """Writes a model of any format as model.json, with large constants in a .safetensors file
    beside it, and returns the path.

    ``allow_outside``: data files of the model may be outside of its folder. ``choices`` as for
    :func:`crtexport.load`. Raises CrtExportError if an output is a file that is read, or if the
    file of constants would replace a file that crtexport didn't write; ``force`` allows that.
    """
    path, claims = Path(output), Claims()
    claims.file("output", path)
    claims.file("the file of constants beside it", crtjson.sidecar_of(path))
    claims.reads(Path(model))
    graph = driver.load(model, allow_outside=allow_outside, choices=choices)
    claims.reads(*data_files(graph))
    crtjson.save(graph, path, force=force)
    return path


def bench(
    model: Path | str, *, board: Board | Path | str, inputs: Mapping[str, Array] | None = None,
    timeout: float = DEFAULT_TIMEOUT, **changes: Unpack[ExportChanges],
) -> benches.Bench | HostBench:
    """Exports a model for a board, runs its firmware in QEMU, and returns what it costs:
    instructions by layer, flash, RAM and stack, and recorded figures of other tools for the same
    file and board.

    On boards that are this computer, CPU time is measured instead, and compared with LiteRT
    (HostBench). ``inputs`` as for :func:`crtexport.run`, ``changes`` as for
    :func:`crtexport.export`; ``timeout`` limits each boot, in seconds. Raises what exporting and
    running raise.
    """
    where = driver.resolve_board(board)
    if where.hosted:
        return bench_host(model, board=where, inputs=inputs, **changes)
    return benches.bench(MeasureSetting(model, where, ExportOptions(**changes), inputs, timeout))


def report(
    model: Path | str, *, board: Board | Path | str | None = None, page: Path | str | None = None,
    measured: bool = False, inputs: Mapping[str, Array] | None = None,
    timeout: float = DEFAULT_TIMEOUT, **changes: Unpack[ExportChanges],
) -> Report:
    """Returns a report: whether a model fits a board, and what each layer costs. That of a package
    is the same as that of its model, and takes no export.

    Instructions are estimated by the cost model. If ``measured`` is set, they are counted in the
    board's emulator, on ``inputs``, within ``timeout`` seconds. ``page`` is a file to write the
    report to, .html or .json. ``board`` and ``changes`` as for :func:`crtexport.export`. Raises
    CrtExportError for options that a package doesn't allow, and what exporting and running raise.
    """
    claims = Claims()
    if page is not None:
        page_file.check(Path(page))
        claims.file("page", Path(page))
    claims.reads(Path(model))
    if Path(model).is_file() and is_tarfile(model):
        if board is not None or measured or inputs is not None or changes:
            raise CrtExportError(
                "a package has its board and options", location=str(model),
                hint="report on the model instead",
            )
        made = packages.report(Path(model))
    else:
        setting = MeasureSetting(model, board or "host", ExportOptions(**changes), inputs, timeout)
        made = collect.report(setting, measured=measured)
    if page is not None:
        page_file.write(made, Path(page))
    return made


def plans_of(
    model: Path | str | Graph, *, board: Board | Path | str | None = None,
    picture: Path | str | None = None, **changes: Unpack[ExportChanges],
) -> Plans:
    """Compares the plans that a model can have on a board, by RAM, instructions and code, and says
    which options give each: the verb ``plan``, whose name is a folder of this package.

    ``picture`` is an .svg or .png file to draw them into. ``board`` and ``changes`` as for
    :func:`crtexport.export`, but that ``optimize``, ``ram`` and ``feed`` are what is compared.
    Raises what exporting raises, but for a lack of memory.
    """
    claims = Claims()
    if picture is not None:
        chart.check(Path(picture))
        claims.file("picture", Path(picture))
    target, options = driver.resolve_board(board or "host"), ExportOptions(**changes)
    if not isinstance(model, Graph):
        claims.reads(Path(model))
        model = driver.load(
            model, numerics=options.numerics, accelerators=options.accelerators, board=target,
            choices=options.choices,
        )
        claims.reads(*data_files(model))
    found = plans.plans_of(model, target, options)
    if picture is not None:
        chart.draw_plans(found, Path(picture))
    return found


def diff(
    before: Report | Path | str, after: Report | Path | str, limits: Mapping[str, str] | None = None
) -> Difference:
    """Compares two reports; each is a report, a file with one, or a package.

    ``limits`` are limits for figures of ``after``, as in ``{"flash": "+2%"}``; the result's
    ``within`` says whether they are kept. Raises CrtExportError for a limit of a figure that a
    report doesn't contain, and for files that are no reports.
    """
    unknown = sorted({*(limits or ())} - {*difference.FIGURES})
    if unknown:
        raise CrtExportError(
            f"there is no figure {unknown[0]!r}", location="limits",
            hint=f"there are {', '.join(difference.FIGURES)}",
        )
    allowed = {what: difference.limit(what, text) for what, text in (limits or {}).items()}
    return difference.compare(_report(before), _report(after), allowed)


def _report(source: Report | Path | str) -> Report:
    if isinstance(source, Report):
        return source
    path = Path(source)
    return packages.report(path) if path.is_file() and is_tarfile(path) else figures.read(path)


def doctor() -> list[Installed]:
    """Returns the programs and packages that commands use, which of them are installed, and how to
    install the others. Nothing is changed."""
    return installed()


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of model.json, for editors and validators."""
    return crtjson.schema()
