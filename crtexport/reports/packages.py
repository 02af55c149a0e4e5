"""The report of a package, which has a summary of its network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from crtexport.firmware.board import Board
from crtexport.firmware.package import board_from_package
from crtexport.mlf.layout import NETWORK
from crtexport.mlf.reader import Package, open_package
from crtexport.pipeline.summary.records import NetworkSummary
from crtexport.reports import figures
from crtexport.reports.assemble import ReportParts, assemble
from crtexport.reports.function_sizes import function_sizes
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import InvalidDataError, record


def report(path: Path, command: str = "") -> figures.Report:
    """Returns the report of the package ``path``, which must have one model. ``command`` as for
    :func:`crtexport.reports.collect.report`. Raises CrtExportError for a file that is no package,
    for a package of another exporter, and for one of several models."""
    package = open_package(path)
    if len(package.modules) > 1:
        raise CrtExportError(
            f"a report is of one model; the package has {', '.join(package.modules)}",
            location=str(path), hint="`crtexport report MODEL --board NAME` makes one of each",
        )
    return assemble(replace(parts_of(package, board_from_package(package)), command=command))


def parts_of(package: Package, board: Board) -> ReportParts:
    """Returns the sources of a report of a package with one model, on ``board``. Raises
    CrtExportError for a package of another exporter, and for a damaged one."""
    own, section = package.described, package.own_section
    return ReportParts(
        section, own, _network(package), None if section.emit == "c" else function_sizes(package),
        board,
    )


def _network(package: Package) -> NetworkSummary:
    data = package.network_data
    if data is None:
        raise CrtExportError(
            "the package doesn't describe its network", location=str(package.path),
            hint="export the model again, or report on the model instead",
        )
    try:
        network = record(NetworkSummary, data, "ignore")
    except InvalidDataError as error:
        keys = ".".join(map(str, error.problems[0].path))
        raise _damaged(package, error.problems[0].text, keys) from error
    for key, holds in _facts(network, 1 + len(package.described.workspace.spilled)):
        if not holds:
            raise _damaged(package, "the entries contradict each other", key)
    return network


def _damaged(package: Package, problem: str, keys: str) -> CrtExportError:
    return CrtExportError(
        f"the summary of the network is damaged: {problem}",
        location=(str(package.path), NETWORK, keys), hint="export the model again",
    )


def _facts(network: NetworkSummary, pools: int) -> Iterator[tuple[str, bool]]:
    """Yields whether facts hold that reports rely on, with the keys of entries; the workspace has
    so many ``pools``."""
    count = len(network.steps)
    for number, step in enumerate(network.steps):
        yield f"steps.{number}.scratch", step.scratch is None or step.scratch.pool < pools
    for number, layer in enumerate(network.layers):
        yield f"layers.{number}.step", -1 <= layer.step < count
    for number, tensor in enumerate(network.tensors):
        yield f"tensors.{number}", -1 <= tensor.first <= tensor.last <= count
        yield f"tensors.{number}.pool", tensor.pool < pools
        yield f"tensors.{number}.quantization", tensor.quantization is None or (
            0 < len(tensor.quantization.scale) == len(tensor.quantization.zero_point)
        )
