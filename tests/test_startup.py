"""The imports of an export: before it begins, by its source, and until its package is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.kir.intrinsics.registry import MACHINES
from crtexport.schedules.variants import INSTRUCTION_SETS
from crtexport.simulation.tflite_writer import to_tflite
from tests.cli.support import DIGITS
from tests.test_architecture import imports_of, inside, module_name

MODULES = {module_name(path): path for path in inside()}

LATE = (
    "crtexport.accelerators.cmsis_nn", "crtexport.backends.c.source",
    "crtexport.backends.llvm.compile",
    "crtexport.firmware.zephyr", "crtexport.importers.crtjson", "crtexport.importers.onnx",
    "crtexport.importers.tflite", "crtexport.reports", "crtexport.schedules.scalar",
    "crtexport.simulation", "jinja2", "llvmlite", "rich", "tflite",
    *(f"crtexport.schedules.{known.name}" for known in INSTRUCTION_SETS),
)
"""Folders, modules and packages of which nothing is imported when the modules of an export are."""


def among(names: Iterable[str], folders: Iterable[str]) -> set[str]:
    """Returns those of ``names`` that are in ``folders``, modules or packages themselves."""
    return {
        name for name in names
        for folder in folders if name == folder or name.startswith(f"{folder}.")
    }


def waited_for(start: str) -> set[str]:
    """All modules that importing ``start`` imports, and those outside that they name."""
    found: set[str] = set()
    left = [start]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        if "." in name:
            left.append(name.rpartition(".")[0])
        if name in MODULES:
            left += [i.module for i in imports_of(MODULES[name]) if not (i.lazy or i.typing)]
    return found


@pytest.fixture(scope="module")
def export() -> set[str]:
    return waited_for("crtexport.cli.export") | waited_for("crtexport.pipeline.driver")


def test_llvm_starts_before_an_export_imports_much() -> None:
    early = waited_for("crtexport.cli.export")
    assert not among(early, ["crtexport.pipeline", "numpy"])


def test_the_walk_finds_what_exports_need(export: set[str]) -> None:
    assert {"crtexport.ir.graph", "crtexport.schedules.variants", "numpy"} <= export


def test_an_export_imports_late_what_not_every_export_needs(export: set[str]) -> None:
    assert not among(export, LATE)


@pytest.mark.parametrize("folder", [name for name in LATE if name.startswith("crtexport.")])
def test_late_folders_exist(folder: str) -> None:
    """So that a new name can't make the test above true."""
    assert among(MODULES, [folder])


NEVER = (
    "crtexport.accelerators.cmsis_nn", "crtexport.devices.image", "crtexport.importers.crtjson",
    "crtexport.importers.onnx", "crtexport.lowering.ops.detection", "crtexport.mlf.reader",
    "crtexport.reports", "crtexport.simulation", "jinja2", "llvmlite", "rich", "tflite",
    *(f"crtexport.kir.intrinsics.{machine}" for machine in MACHINES),
    *(f"crtexport.schedules.{known.name}" for known in INSTRUCTION_SETS),
)
"""Modules that the export of an int8 .tflite for a Cortex-M4 has no use for."""


def imported_by_export(tmp_path: Path, *more: str) -> set[str]:
    """Returns what an export for a Cortex-M4 has imported when its package is there."""
    model = tmp_path / "digits.tflite"
    model.write_bytes(to_tflite(load(DIGITS)))
    arguments = [str(model), "--board", "mps2_an386", "-q", "-o", str(tmp_path / "x.tar"), *more]
    script = (
        "import sys; from crtexport.cli.main import main\n"
        f"code = main({arguments!r})\n"
        "print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_whole_export_imports_what_it_uses(tmp_path: Path) -> None:
    imported = imported_by_export(tmp_path)
    assert "crtexport.schedules.scalar.smlad_channel_pairs" in imported, "or this test sees nothing"
    assert not among(imported, NEVER)


def test_an_export_of_c_sources_imports_neither_templates_nor_llvm(tmp_path: Path) -> None:
    imported = imported_by_export(tmp_path, "--emit", "c")
    assert "crtexport.backends.c.entry" in imported
    assert not among(imported, ["jinja2", "llvmlite"])
