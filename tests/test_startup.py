"""What an export waits for before it begins, read from the source: imports of whole modules."""

from __future__ import annotations

import pytest

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
    return waited_for("crtexport.cli.export")


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
