"""``crtexport export``, and a model as the first argument"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.cli.main import main
from crtexport.mlf.npz import save_npz
from crtexport.mlf.reader import open_package
from tests.cli.support import DIGITS, DIGITS_IMAGES
from tests.helpers import require
from tests.mlf.consumers import complaints
from tests.tflite_builder import ModelBuilder


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_model_alone_is_exported_for_this_computer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS)]) == 0
    (package,) = Path().glob("*.tar")
    assert package.name.endswith("-host.tar")
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{package}: ")
    assert captured.err == "note: no --board was given: this is for host, this computer\n"
    assert complaints(package) == []


def test_every_option_reaches_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "export", str(DIGITS), "--board", "mps2_an386", "-o", "out.tar", "--emit", "c",
        "--optimize", "size", "--workspace", "caller", "--rounding", "single", "--module-name",
        "default", "--no-system-lib", "--json",
    ]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["package"], data["board"], data["module"], data["emit"]) == (
        "out.tar", "mps2_an386", "default", "c"
    )
    assert data["bytes"]["inputs"] == 64
    package = open_package(Path("out.tar"))
    assert package.module == "default"
    assert package.objects == {}
    assert package.section is not None
    assert not package.section.system_lib
    assert package.module_section is not None
    assert package.module_section.workspace.owner == "caller"
    assert (package.module_section.optimize, package.module_section.numerics) == ("size", "litert")
    assert complaints(Path("out.tar")) == []


def test_an_export_ends_with_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(DIGITS), "--board", "mps2_an386", "-o", "x.tar"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert main(["report", *words[:3], "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    flash = totals["flash"] - totals["other"]
    assert f"memory of the board: flash {flash:,} of 4,194,304 bytes (0.2 %), ram " in said
    assert f"ram {totals['ram']:,} of" in said
    assert (
        f"one inference: {totals['macs']:,} multiply-accumulates,"
        f" about {totals['instructions']:,} instructions\n"
    ) in said
    costly, after = said.splitlines()[-2:]
    assert costly.startswith("most expensive: ")
    assert costly.count(" %") == 3
    assert after.startswith("next: `crtexport run x.tar` runs it; `crtexport build x.tar -o DIR`")
    assert main([*words, "--emit", "c"]) == 0
    said = capsys.readouterr().out
    assert "memory of the board (without code, which isn't compiled yet): flash " in said
    for quiet in (["-q"], ["--json"]):
        assert main([*words, *quiet]) == 0
        assert "one inference" not in capsys.readouterr().out


@pytest.mark.parametrize(("board", "known"), [("mps2_an386", True), ("qemu_cortex_m0", False)])
def test_floats_are_not_estimated_where_functions_compute_them(
    board: str, known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    m, rng = ModelBuilder(), np.random.default_rng(2)
    x = m.tensor("x", (3, 40), "float32")
    w = m.tensor("w", (10, 40), "float32", data=rng.normal(size=(10, 40)).astype(np.float32))
    y = m.tensor("y", (3, 10), "float32")
    m.op("FULLY_CONNECTED", [x, w], [y])
    Path("m.tflite").write_bytes(m.build([x], [y]))
    assert main(["m.tflite", "--board", board]) == 0
    said = capsys.readouterr().out
    assert "one inference: 1,200 multiply-accumulates" in said
    assert ("instructions" in said) == known
    assert "operator 0 (FULLY_CONNECTED) 100 %" in said


def test_packed_weights_take_half_of_the_flash(capsys: pytest.CaptureFixture[str]) -> None:
    m, rng = ModelBuilder(), np.random.default_rng(2)
    x = m.tensor("x", (3, 40), "int8", 0.05)
    w = m.tensor("w", (10, 40), "int8", 0.05, data=rng.integers(-8, 8, (10, 40)))
    y = m.tensor("y", (3, 10), "int8", 0.5)
    m.op("FULLY_CONNECTED", [x, w], [y])
    Path("m.tflite").write_bytes(m.build([x], [y]))
    save_npz(Path("x.npz"), {"x": rng.integers(-128, 128, (1, 3, 40)).astype(np.int8)})
    sizes, outputs = [], []
    for weights in ("unpacked", "packed"):
        assert main([
            "m.tflite", "--board", "host", "--emit", "c", "--weights", weights, "-o", "m.tar",
            "--optimize", "size", "--json",
        ]) == 0
        sizes.append(json.loads(capsys.readouterr().out)["bytes"]["constants"])
        assert main(["simulate", "m.tar", "--input", "x.npz", "--json"]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["outputs"])
    assert sizes[0] - sizes[1] == 200
    assert outputs[0] == outputs[1]
    assert main(["inspect", "m.tflite", "--stage", "graph", "--weights", "packed"]) == 0
    assert "400 bytes, stored in 4 bits each" in capsys.readouterr().out


def test_verbose_tells_steps_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "-v"]) == 0
    assert "plan memory" in capsys.readouterr().err


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert list(Path().glob("*.tar"))


def test_a_failed_export_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.json").write_text("{}")
    assert main(["bad.json", "-o", "out.tar"]) == 2
    assert main([str(DIGITS), "-o", "missing/out.tar"]) == 2
    assert "create the folder missing first" in capsys.readouterr().err
    assert main([str(DIGITS), "--board", "qemu_x68", "-o", "out.tar"]) == 2
    assert "qemu_x86" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["bad.json"]


def test_two_exports_are_the_same_bytes() -> None:
    for name in ("a.tar", "b.tar"):
        assert main([str(DIGITS), "--board", "qemu_x86", "-o", name]) == 0
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()
    with tarfile.TarFile("a.tar") as tar:
        assert {member.mtime for member in tar} == {0}


def test_inputs_without_a_run_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DIGITS), "--input", "x.npz"]) == 2
    assert "--input goes with --run" in capsys.readouterr().err


@pytest.mark.qemu
def test_run_predicts_the_digits(capsys: pytest.CaptureFixture[str]) -> None:
    require("gcc")
    require("qemu-system-i386")
    arguments = [
        str(DIGITS), "--board", "qemu_x86", "--run", "--input", str(DIGITS_IMAGES), "--json"
    ]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    run = data["run"]
    assert len(run["outputs"]) == 12
    assert run["instructions"]["first"] == run["instructions"]["second"]
    assert run["instructions"]["exact"]
    assert run["ram"]


@pytest.mark.parametrize(
    "name", ["x.zip", "x.tar.gz", "x.TGZ", "other.tflite", "net.json", "net.c", "a/x.elf"]
)
def test_a_package_is_not_called_like_another_format(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a").mkdir()
    assert main([str(DIGITS), "--board", "host", "-o", name]) == 2
    said = capsys.readouterr().err
    assert f"error: {name}: a package is an uncompressed tar file" in said
    assert f"hint: call it {name.split('.', maxsplit=1)[0]}.tar\n" in said
    assert [*Path().rglob("*")] == [Path("a")]


@pytest.mark.parametrize("name", ["x", "x.tar", "net-1.2", "x.mlf"])
def test_other_names_are_the_users_choice(name: str) -> None:
    assert main([str(DIGITS), "--board", "host", "-o", name, "--emit", "c", "-q"]) == 0
    assert complaints(Path(name)) == []


def wrong_inputs(kind: str) -> tuple[dict[str, np.ndarray[Any, Any]] | None, str]:
    image = np.zeros((1, 8, 8, 1), np.int8)
    return {
        "missing": (None, "the arrays can't be read"),
        "name": ({"picture": image}, "there is no array for this input"),
        "more": ({"image": image, "other": image}, "no input is called 'other'"),
        "dtype": ({"image": image.astype(np.uint8)}, "the array is uint8, the input is int8"),
        "shape": ({"image": image[0]}, "the array has shape (8, 8, 1)"),
    }[kind]


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("kind", ["missing", "name", "more", "dtype", "shape"])
def test_wrong_inputs_are_found_before_the_package_is_written(
    kind: str, models: int, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays, problem = wrong_inputs(kind)
    if arrays is not None:
        names = ("a", "b")[:models] if models > 1 else ("",)
        save_npz(Path("x.npz"), {
            f"{name}/{key}" if name else key: array
            for name in names for key, array in arrays.items()
        })
    words = [str(DIGITS)] * models
    if models > 1:
        words += ["--module-name", "a", "--module-name", "b"]
    assert main([*words, "--board", "qemu_x86", "--run", "--input", "x.npz", "--unpack", "u"]) == 2
    assert problem in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == (["x.npz"] if arrays else [])


@pytest.mark.parametrize("verb", ["export", "convert"])
def test_data_from_outside_of_the_models_folder_is_read_where_it_is_allowed(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("inner").mkdir()
    weights = DIGITS.with_name("model.safetensors")
    Path("model.safetensors").write_bytes(weights.read_bytes())
    text = DIGITS.read_text(encoding="utf-8").replace("model.safetensors", "../model.safetensors")
    Path("inner/model.json").write_text(text, encoding="utf-8")
    made = "x.tar" if verb == "export" else "x.json"
    words = [verb, "inner/model.json", "-o", made, "-q"]
    words += ["--board", "host", "--emit", "c"] if verb == "export" else []
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "lies outside of the model's folder" in said
    assert "--allow-outside" in said
    assert not Path(made).exists()
    assert main([*words, "--allow-outside"]) == 0
    assert Path(made).exists()


@pytest.mark.parametrize("words", [["inspect", "--stage", "graph"], ["export", "-o", "x.tar"]])
def test_the_board_that_was_taken_is_said_where_none_was_named(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    note = "note: no --board was given: this is for host, this computer\n"
    verb, *options = words
    for more, said in (([], note), (["--json"], note), (["-q"], ""), (["--board", "host"], "")):
        assert main([verb, str(DIGITS), *options, *more]) == 0
        assert capsys.readouterr().err == said
