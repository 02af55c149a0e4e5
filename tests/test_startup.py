"""What an export imports: before it begins, as the source says, and until its package is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.simulation.tflite_writer import to_tflite
from tests.cli.support import DIGITS
from tests.test_architecture import imports_of, inside, module_name

MODULES = {module_name(path): path for path in inside()}

SCHEDULES = (
    "fpu", "fpu_depthwise", "halves", "mve", "paired", "pixel_pairs", "planes", "quads", "rvv",
    "x86_dense", "x86_depthwise",
)
"""Those of instruction sets: an export has one."""
LATE = (
    *(f"crtexport.schedules.{name}" for name in SCHEDULES),
    "crtexport.accelerators.cmsis_nn", "crtexport.backends.c_source",
    "crtexport.backends.llvm_compile", "crtexport.firmware.zephyr", "crtexport.importers.crtjson",
    "crtexport.importers.tflite", "crtexport.report", "crtexport.simulation", "jinja2",
    "llvmlite", "rich", "tflite",
)


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
    return waited_for("crtexport.cli.export") | waited_for("crtexport.pipeline")


def test_llvm_starts_before_an_export_imports_much() -> None:
    assert not {"crtexport.pipeline", "numpy", "pydantic"} & waited_for("crtexport.cli.export")


def test_the_walk_finds_what_exports_need(export: set[str]) -> None:
    assert {"crtexport.ir.graph", "crtexport.schedules", "numpy"} <= export


@pytest.mark.parametrize("late", LATE)
def test_an_export_imports_late(late: str, export: set[str]) -> None:
    assert late not in export


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_where_they_are_looked_for(name: str) -> None:
    """So that a new name can't make the test above true."""
    late = {i.module for i in imports_of(MODULES["crtexport.schedules"]) if i.lazy}
    assert f"crtexport.schedules.{name}" in late


NEVER = (
    "crtexport.accelerators.cmsis_nn", "crtexport.devices.image", "crtexport.importers.crtjson",
    "crtexport.kernels.detection", "crtexport.kernels.intrinsics_mve",
    "crtexport.kernels.intrinsics_rvv", "crtexport.kernels.intrinsics_x86", "crtexport.mlf.reader",
    "crtexport.report", "crtexport.schedules.fpu", "crtexport.schedules.mve",
    "crtexport.schedules.quads", "crtexport.schedules.rvv", "crtexport.schedules.x86_dense",
    "crtexport.simulation", "jinja2", "llvmlite", "pydantic", "rich", "tflite", "yaml",
)
"""What the export of an int8 .tflite for a Cortex-M4 has no use for."""


def test_a_whole_export_imports_what_it_uses(tmp_path: Path) -> None:
    model = tmp_path / "digits.tflite"
    model.write_bytes(to_tflite(load(DIGITS)))
    arguments = [str(model), "--board", "mps2_an386", "-q", "-o", str(tmp_path / "digits.tar")]
    script = (
        "import sys; from crtexport.cli.main import main\n"
        f"code = main({arguments!r})\n"
        "print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        (sys.executable, "-c", script), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "crtexport.schedules.paired" in imported, "or this test sees nothing"
    assert not imported & set(NEVER)
