"""Reports of packages are those of their models, and damaged packages do no harm."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.mlf.reader import Package, open_package
from crtexport.pipeline import driver
from crtexport.pipeline.driver import Exported
from crtexport.pipeline.options import Emit, ExportOptions, Io, Optimize
from crtexport.reports import packages
from crtexport.reports.collect import report
from crtexport.reports.figures import Report, to_data
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.page.html import render
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS
from tests.control.networks import NETWORKS
from tests.fuzz.drawn import drawn
from tests.reports.harmless import EVIL, check_harmless

BOARDS = ("nrf52840dk", "mps3_an547", "qemu_riscv32", "host")
EMITS: tuple[Emit, ...] = ("c", "llvm")
IOS: tuple[Io, ...] = ("caller", "workspace")
GOALS: tuple[Optimize, ...] = ("balanced", "ram", "speed", "size")


def content(made: Report) -> dict[str, Any]:
    """Returns all of a report but what makes it again."""
    return to_data(made) | {"reproduce": None}


def check_same(exported: Exported, options: ExportOptions) -> None:
    """Asserts that the report of a package is that of the network in it."""
    found = packages.report(exported.path)
    assert found.layers
    setting = MeasureSetting(exported.read[0], exported.board, options)
    assert content(found) == content(report(setting))
    check_harmless(render(found))


def test_a_package_has_the_report_of_its_model(tmp_path: Path) -> None:
    """Drawn networks, each with options and a board that are drawn, too."""
    rng, tried = np.random.default_rng(24), 0
    for seed in range(18):
        board = BOARDS[rng.integers(len(BOARDS))]
        options = ExportOptions(
            emit=EMITS[rng.integers(len(EMITS))], io=IOS[rng.integers(len(IOS))],
            optimize=GOALS[rng.integers(len(GOALS))],
        )
        try:
            made = driver.export(drawn(seed).graph, options, board=board, output=tmp_path / "x.tar")
        except CrtExportError:
            continue  # the network doesn't fit that board
        check_same(made, options)
        tried += 1
    assert tried > 9


@pytest.mark.parametrize("name", NETWORKS)
def test_branches_and_loops_are_in_packages_as_well(name: str, tmp_path: Path) -> None:
    graph = NETWORKS[name]().graph
    check_same(driver.export(graph, board="nrf52840dk", output=tmp_path / "x.tar"), ExportOptions())


def test_the_page_of_a_package_is_that_of_its_model(tmp_path: Path) -> None:
    made = driver.export(DIGITS, board="nrf52840dk", output=tmp_path / "x.tar")
    package = packages.report(made.path, "crtexport report model.json")
    model = report(MeasureSetting(DIGITS, "nrf52840dk"), "crtexport report model.json")
    assert render(package) == render(model)


def places(data: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the paths of all values inside JSON data."""
    entries = data.items() if isinstance(data, dict) else (
        enumerate(data) if isinstance(data, list) else ()
    )
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def test_a_damaged_summary_is_refused_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of value is replaced by others, also where the package's hashes are right."""
    made = driver.export(DIGITS, board="nrf52840dk", output=tmp_path / "x.tar")
    text = json.dumps(open_package(made.path).network_data)
    rng = np.random.default_rng(7)
    refused, shown = list[str](), 0
    found = [*places(json.loads(text))]
    for number in rng.choice(len(found), 60, replace=False):
        data = json.loads(text)
        *path, last = found[number]
        inner = functools.reduce(lambda value, key: value[key], path, data)
        inner[last] = (None, -2, 0, 10**6, 1 << 70, 0.5, "x", [], {}, EVIL)[rng.integers(10)]
        monkeypatch.setattr(Package, "network_data", data)
        try:
            check_harmless(render(packages.report(made.path)))
            shown += 1
        except CrtExportError as error:
            refused.append(str(error))
    assert min(len(refused), shown) > 10
    assert all("the summary of the network is damaged" in said for said in refused)
    monkeypatch.setattr(Package, "network_data", None)
    with pytest.raises(CrtExportError, match="doesn't describe its network"):
        packages.report(made.path)
