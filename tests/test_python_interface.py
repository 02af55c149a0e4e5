"""The package as a Python user meets it: names, what prompts and notebooks show, verbs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from xml.dom.minidom import parseString

import click
import numpy as np
import pytest

import crtexport
from crtexport.cli.main import cli
from crtexport.firmware.board import load_board
from crtexport.firmware.run import BuildResult, RunResult, WatchedCall
from crtexport.firmware.sections import Sections, Symbol
from crtexport.firmware.spent import Spent
from crtexport.importers.crtjson import schema
from crtexport.package_actions import Simulated
from crtexport.pipeline.result import Exported
from crtexport.reports.bench import Bench
from crtexport.reports.difference import Change, Difference, LayerChange
from crtexport.reports.peers import figures_for
from crtexport.reports.plans import PlanPoint, Plans
from crtexport.support.short import line, table
from crtexport.verification import (
    LayerComparison,
    LayersResult,
    OutputComparison,
    VerifyResult,
)
from tests.cli.support import DIGITS
from tests.helpers import require, shared_model

LONGEST = 500

# The first is of builds by Zephyr. The other's function is plans_of, because "plan" is a folder.
NO_FUNCTION = {"zephyr", "plan"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported")
    return crtexport.export(
        shared_model("vww96_int8"), board="mps2_an386", emit="c", output=folder / "vww.tar",
    )


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("gcc")
    path = tmp_path_factory.mktemp("digits") / "digits.tar"
    return crtexport.export(DIGITS, emit="c", output=path).path


@pytest.fixture(scope="module")
def simulated(digits: Path) -> Simulated:
    images = np.load(DIGITS.with_name("test_images.npz"))["image"]
    return crtexport.simulate(digits, {"image": images})


def test_the_package_lists_its_verbs_and_nothing_else() -> None:
    assert dir(crtexport) == sorted(crtexport.__all__)


@pytest.mark.parametrize("name", crtexport.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    found = getattr(crtexport, name)
    assert inspect.getdoc(found)


def test_every_command_is_a_function() -> None:
    context = click.Context(cli)
    assert {*cli.list_commands(context)} - NO_FUNCTION <= {*crtexport.__all__}


def comparisons(count: int) -> tuple[OutputComparison, ...]:
    return tuple(OutputComparison(f"output {n}", "int8", 1.0, 0.0, 1) for n in range(count))


def measured() -> dict[str, Any]:
    """Results of what takes long, as large as they may be."""
    symbols = tuple(Symbol(f"symbol{n}", n, 4) for n in range(999))
    flash, ram = {f".text{n}": n for n in range(99)}, {".bss": 7}
    sections = Sections(flash, ram, symbols)
    calls = tuple(WatchedCall(f"f{n}", Spent(n)) for n in range(99))
    arrays = tuple((np.arange(1000),) for _ in range(99))
    points = tuple(PlanPoint(("--ram", f"{n}"), n, n, 900, 99, 3, True) for n in range(1, 99))
    change = Change("flash", 1, 2, "+0")
    return {
        "plan": Plans("kws", "mps2_an386", points, points[0], points[0]),
        "diff": Difference((change,), (LayerChange("conv", change, change, change),) * 99, ()),
        "run": RunResult(arrays, 1000, 900, True, flash, ram, 96, symbols, calls),
        "build": BuildResult(Path("build/firmware.elf"), sections),
        "sections": sections,
        "verify": VerifyResult("tflite-runtime 2.14", "host, C", 10, comparisons(99)),
        "verify_layers": LayersResult("tflite-runtime 2.14", "host, C", 10, tuple(
            LayerComparison(f"node {n}", one, (1, 2)) for n, one in enumerate(comparisons(99))
        )),
        "bench": Bench(
            "kws.tflite", "00", "mps2_an386", "llvm", "balanced", 9, 9, True, (), flash, ram,
            1, 2, 3, figures_for("00", "mps2_an386"),
        ),
    }


def test_results_are_short_where_they_are_shown(exported: Exported, simulated: Simulated) -> None:
    model = exported.models[0]
    shown = {
        "export": exported, "prepared": model, "load": exported.read[0], "graph": model.graph,
        "lowered": model.lowered, "model.plan": model.plan, "artifact": model.artifact,
        "inspect": crtexport.inspect(exported.path), "simulate": simulated,
        **{f"tensor {n}": tensor for n, tensor in enumerate(model.graph.tensors)},
        **{f"node {n}": node for n, node in enumerate(model.graph.nodes)},
        **{f"lowered node {n}": node for n, node in enumerate(model.lowered.nodes)},
        **{f"board {name}": board for name, board in crtexport.boards().items()},
        **measured(),
    }
    lengths = {name: len(repr(value)) for name, value in shown.items()}
    assert not {name: length for name, length in lengths.items() if length > LONGEST}
    assert repr(exported) == (
        f"<Exported {model.artifact.module} for mps2_an386 to vww.tar: "
        f"constants {exported.sizes['constants']:,} B, "
        f"workspace {exported.sizes['workspace']:,} B, inputs 27,648 B, outputs 2 B>"
    )


def test_long_names_are_cut() -> None:
    assert len(line("Graph", "x" * 10_000)) < 100


def elements(html: str, name: str) -> list[str]:
    """Returns the texts of all elements of a name, in HTML that must be well-formed."""
    found = parseString(f"<div>{html}</div>").getElementsByTagName(name)  # noqa: S318  (our own)
    return ["".join(c.nodeValue or "" for c in e.childNodes if c.nodeType == 3) for e in found]


def test_notebooks_show_plans_pictures_and_tables(exported: Exported, simulated: Simulated) -> None:
    picture = exported.models[0]._repr_html_()
    assert len(elements(picture, "svg")) == 1
    assert picture in exported._repr_html_()
    for value in (exported.plan, simulated, *(
        found for name, found in measured().items() if name not in ("build", "sections")
    )):
        assert elements(value._repr_html_(), "caption")


def test_tables_escape_what_models_say() -> None:
    text = table("<script>", [("<b>", 1234, None)], ("&",))
    assert "<script>" not in text
    assert elements(text, "td") == ["<b>", "1,234", "-"]


def test_outputs_of_simulations_have_names(simulated: Simulated) -> None:
    several = simulated.outputs["probabilities"]
    assert several.shape == (len(simulated), 1, 10)
    one = Simulated(simulated[:1]).outputs["probabilities"]
    assert one.shape == (1, 10)
    assert (several[0] == one).all()
    assert Simulated().outputs == {}


def test_verbs_that_look_and_convert(digits: Path, tmp_path: Path) -> None:
    package = crtexport.inspect(str(digits))
    assert package.module == "digits"
    files = crtexport.unpack(digits, tmp_path / "unpacked")
    assert tmp_path / "unpacked" / "include" / "tvmgen_digits.h" in files
    again = crtexport.convert(DIGITS, tmp_path / "again.json")
    assert len(crtexport.load(again).nodes) == len(crtexport.load(DIGITS).nodes)
    with pytest.raises(crtexport.CrtExportError, match=r"again\.json"):
        crtexport.convert(again, again)
    assert crtexport.boards()["esp32"] == load_board("esp32")
    assert crtexport.schema() == schema()


def test_reports_of_models_and_packages_are_compared(tmp_path: Path) -> None:
    page = tmp_path / "digits.html"
    small = crtexport.report(DIGITS, board="mps2_an386", page=page, optimize="size")
    fast = crtexport.report(DIGITS, board="mps2_an386", optimize="speed")
    assert len(repr(small)) < LONGEST
    assert "<iframe srcdoc=" in small._repr_html_()
    assert crtexport.diff(page, small).notes == ()
    found = crtexport.diff(small, fast, {"flash": "+0"})
    assert not found.within
    with pytest.raises(crtexport.CrtExportError, match="no figure 'flsh'"):
        crtexport.diff(small, fast, {"flsh": "+0"})


def test_a_package_has_its_board(exported: Exported) -> None:
    assert crtexport.report(exported.path).board.name == "mps2_an386"
    with pytest.raises(crtexport.CrtExportError, match="has its board"):
        crtexport.report(exported.path, board="host")


def test_doctor_is_what_the_command_prints() -> None:
    assert "numpy" in {one.name for one in crtexport.doctor()}


@pytest.mark.qemu
def test_bench_measures_one_network() -> None:
    require("qemu-system-i386")
    found = crtexport.bench(DIGITS, board="qemu_x86", emit="c")
    assert isinstance(found, Bench)
    assert found.second is not None
    assert found.layers
    assert found.macs > 0
