"""``crtexport report``: the same facts as an export, a bench and a package have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.cli.main import main
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.reports import figures
from crtexport.reports.bench import bench
from crtexport.reports.measure import MeasureSetting
from tests.cli.support import DIGITS
from tests.helpers import require, shared_model
from tests.tflite_builder import ModelBuilder

BOARD = "mps2_an386"


def reported(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Returns what the verb prints as JSON."""
    assert main(["report", *words, "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_sizes_are_those_of_the_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = reported(capsys, str(DIGITS), "--board", BOARD)
    made = driver.export(DIGITS, board=BOARD, output=tmp_path / "digits.tar")
    totals, section = data["totals"], open_package(made.path).own_section
    text = sum(one.sections[".text"] for one in section.objects.values())
    assert totals["code"] == text
    assert totals["weights"] + totals["tables"] == made.sizes["constants"]
    assert totals["workspace"] == made.sizes["workspace"]
    assert totals["io"] == made.sizes["inputs"] + made.sizes["outputs"]
    assert sum(layer["weights"] + layer["tables"] for layer in data["layers"]) == (
        made.sizes["constants"]
    )
    assert 0 < sum(layer["code"] for layer in data["layers"]) < text
    flash, ram = data["memories"]
    assert flash["used"] == totals["flash"] == sum(one["bytes"] for one in flash["contents"])
    assert ram["used"] == totals["ram"] == sum(one["bytes"] for one in ram["contents"])
    assert data["fits"]


@pytest.mark.parametrize("emit", ["llvm", "c"])
@pytest.mark.qemu
def test_measured_figures_are_those_of_bench(
    emit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require("arm-none-eabi-gcc")
    require("qemu-system-arm")
    data = reported(capsys, str(DIGITS), "--board", BOARD, "--measure", "--emit", emit)
    options = driver.ExportOptions(emit="c" if emit == "c" else "llvm")
    found = bench(MeasureSetting(DIGITS, BOARD, options))
    totals = data["totals"]
    assert totals["instructions"] == found.second
    assert totals["instructions_are"] == "counted"
    assert totals["stack_measured"] == found.stack
    assert totals["macs"] == found.macs
    for mine, theirs in zip(data["layers"], found.layers, strict=True):
        assert (mine["name"], mine["macs"], mine["instructions"], mine["code"]) == (
            theirs.name, theirs.macs, theirs.instructions, theirs.code
        )
    if emit == "llvm":
        estimated = reported(capsys, str(DIGITS), "--board", BOARD)["totals"]
        assert estimated["instructions_are"] == "estimated"
        assert abs(estimated["instructions"] / totals["instructions"] - 1) < 0.5


def test_tensors_lie_where_the_plan_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    data = reported(capsys, str(DIGITS), "--board", BOARD)
    count, size = len(data["steps"]), data["totals"]["workspace"]
    for tensor in data["tensors"]:
        assert -1 <= tensor["first"] <= tensor["last"] <= count
        if tensor["space"] == "workspace":
            assert 0 <= tensor["offset"] <= size - tensor["bytes"]
    first, last = data["steps"][0], data["steps"][-1]
    by_id = {tensor["id"]: tensor for tensor in data["tensors"]}
    assert by_id[first["inputs"][0]]["space"] == "input"
    assert by_id[last["outputs"][0]]["space"] == "output"
    image = by_id[first["inputs"][0]]
    assert image["quantization"]["low"] == 0
    assert image["quantization"]["high"] == pytest.approx(1)


def test_a_model_that_does_not_fit_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(
        "name: small\ndescription: too small\nextends: mps2_an386\nstack_size: 1KiB\nmemory:\n"
        "  flash: {origin: 0x0, size: 4KiB}\n  ram: {origin: 0x20000000, size: 2KiB}\n"
    )
    assert main(["report", str(DIGITS), "--board", str(tmp_path / "small.yaml")]) == 0
    said = capsys.readouterr().out
    assert "it doesn't fit" in said
    assert "flash: too small: " in said
    data = reported(capsys, str(DIGITS), "--board", str(tmp_path / "small.yaml"))
    whole = reported(capsys, str(DIGITS), "--board", BOARD)
    assert not data["fits"]
    assert data["totals"]["flash"] == whole["totals"]["flash"]


def test_a_package_tells_of_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = driver.export(DIGITS, board=BOARD, output=tmp_path / "digits.tar")
    data = reported(capsys, str(made.path))
    whole = reported(capsys, str(DIGITS), "--board", BOARD)
    assert data.pop("reproduce").keys() == whole.pop("reproduce").keys()
    assert data == whole
    assert main(["report", str(made.path), "--board", BOARD]) == 2
    assert "a package has its board" in capsys.readouterr().err


def test_damaged_packages_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each byte that decides something in the first object's headers is changed, one at a time."""
    made = driver.export(DIGITS, board=BOARD, output=tmp_path / "digits.tar")
    content = made.path.read_bytes()
    start = content.index(b"\x7fELF")
    codes = set()
    for offset in (0, 4, 5, 18, 32, 33, 34, 35, 46, 48, 50):
        damaged = bytearray(content)
        damaged[start + offset] ^= 0x5A
        (tmp_path / "damaged.tar").write_bytes(damaged)
        codes.add(main(["report", str(tmp_path / "damaged.tar"), "-q"]))
        capsys.readouterr()
    assert codes == {2}


def test_a_package_of_several_models_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = driver.export(
        [DIGITS, DIGITS], board=BOARD, output=tmp_path / "two.tar", module_name=["a", "b"]
    )
    assert main(["report", str(made.path)]) == 2
    assert "a report is of one model; the package has a, b" in capsys.readouterr().err


def test_c_sources_say_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    data = reported(capsys, str(DIGITS), "--board", BOARD, "--emit", "c", "--optimize", "size")
    assert data["totals"]["code"] is None
    assert all(layer["code"] is None for layer in data["layers"])
    warned = {one["what"] for one in data["findings"] if one["kind"] == "warning"}
    assert warned == {"code", "instructions"}
    assert data["reproduce"]["command"] == (
        f"crtexport report model.json --board {BOARD} --emit c --optimize size"
    )


def test_no_folder_of_this_computer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\ndescription: mine\nextends: mps2_an386\n")
    words = (str(DIGITS), "--board", str(tmp_path / "mine.yaml"), "--io", "workspace")
    data = reported(capsys, *words)
    assert data["reproduce"]["command"] == (
        "crtexport report model.json --board mine.yaml --io workspace"
    )
    assert data["reproduce"]["options"] == {"io": "workspace"}
    assert str(tmp_path) not in json.dumps(data)


def test_boards_of_this_computer_have_no_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(DIGITS)]) == 0
    said = capsys.readouterr()
    assert "for this computer" in said.out
    assert "no --board was given" in said.err


def test_reports_are_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(DIGITS), "--board", BOARD)
    assert reported(capsys, *words) == reported(capsys, *words)


@pytest.mark.models
def test_offloaded_layers_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Another computes them, in sources that nothing has compiled; their products are known."""
    words = (str(shared_model("kws_int8")), "--board", BOARD)
    ours, theirs = reported(capsys, *words), reported(capsys, *words, "--accelerator", "cmsis-nn")
    assert {layer["by"] for layer in theirs["layers"]} == {"cmsis-nn"}
    assert theirs["totals"]["macs"] == ours["totals"]["macs"] > 0
    assert theirs["totals"]["instructions"] is None
    kinds = [one["kind"] for one in theirs["findings"]]
    assert kinds.count("offloaded") == len(theirs["layers"])
    warned = [one["why"] for one in theirs["findings"] if one["kind"] == "warning"]
    assert len(warned) == 2
    assert "nothing has compiled it" in warned[0]
    assert "layers that others compute" in warned[1]


def test_operators_without_code_of_their_own_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m, rng = ModelBuilder(), np.random.default_rng(2)
    x = m.tensor("x", (3, 40), "float32")
    w = m.tensor("w", (10, 40), "float32", data=rng.normal(size=(10, 40)).astype(np.float32))
    y, z = m.tensor("y", (3, 10), "float32"), m.tensor("z", (3, 10), "float32")
    m.op("FULLY_CONNECTED", [x, w], [y])
    m.op("RELU", [y], [z])
    (tmp_path / "m.tflite").write_bytes(m.build([x], [z]))
    data = reported(capsys, str(tmp_path / "m.tflite"), "--board", BOARD)
    assert [(one["kind"], one["what"]) for one in data["findings"]] == [
        ("removed", "operator 1 (RELU)"), ("float", "all layers"),
    ]


def test_a_model_with_too_many_tensors_for_the_registry_is_reported_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = ModelBuilder()
    x = m.tensor("x", (4,), "float32")
    outputs = [m.tensor(f"y{number}", (4,), "float32") for number in range(12)]
    for output in outputs:
        m.op("ABS", [x], [output])
    (tmp_path / "m.tflite").write_bytes(m.build([x], outputs))
    words = [str(tmp_path / "m.tflite"), "--board", BOARD]
    assert main(["report", *words]) == 2
    assert "leave the registry out with --no-system-lib" in capsys.readouterr().err
    data = reported(capsys, *words, "--no-system-lib")
    assert len([one for one in data["tensors"] if one["space"] == "output"]) == 12
    assert data["reproduce"]["command"] == (
        f"crtexport report m.tflite --board {BOARD} --no-system-lib"
    )


def test_this_computer_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(DIGITS), "--measure"]) == 2
    assert "`crtexport bench` times models here" in capsys.readouterr().err


def test_inputs_go_with_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(DIGITS), "--input", "x.npz"]) == 2
    assert "--input goes with --measure" in capsys.readouterr().err


def read(page: Path) -> Any:
    """Returns the report in a page as JSON has it."""
    return json.loads(json.dumps(figures.to_data(figures.read(page))))


def test_a_page_has_the_same_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "digits.html"
    data = reported(capsys, str(DIGITS), "--board", BOARD, "-o", str(page))
    assert read(page) == data
    assert data["reproduce"]["command"] == f"crtexport report model.json --board {BOARD}"
    assert main(["report", str(DIGITS), "--board", BOARD, "-o", str(page)]) == 0
    assert f"report: {page}" in capsys.readouterr().out
    assert main(["diff", str(page), str(page), "--max-flash", "+0"]) == 0


def test_a_file_of_json_has_the_same_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = reported(capsys, str(DIGITS), "--board", BOARD, "-o", str(tmp_path / "digits.json"))
    assert json.loads((tmp_path / "digits.json").read_text()) == data


def test_a_package_has_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = driver.export(DIGITS, board=BOARD, output=tmp_path / "digits.tar")
    data = reported(capsys, str(made.path), "-o", str(tmp_path / "digits.html"))
    assert read(tmp_path / "digits.html") == data


def test_a_page_that_cannot_be_is_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.tflite").touch()
    assert main(["report", str(tmp_path / "none.tflite"), "-o", str(tmp_path / "x.pdf")]) == 2
    assert "a report is written as .html" in capsys.readouterr().err
