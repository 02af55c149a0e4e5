"""Names that a file gives, however odd, work wherever a user may write them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.cli.main import main
from crtexport.mlf.npz import save_npz
from crtexport.simulation.tflite_writer import to_tflite
from tests.cli.support import DIGITS
from tests.helpers import require
from tests.importers.onnx.test_layout import CLASSIFIER

MODEL = "Café v1.0/final"
INPUTS = ["input_0_f.1", "a/b:0", 'q"uo\nte', "ünïcode", "0digit"]
OUTPUTS = ["file", "../y", "int", "Identity:0", "ö"]
VALUES = np.array([[-1, 0, 1, 2]], np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five Relus side by side."""
    path = tmp_path_factory.mktemp("names") / "model.json"
    path.write_text(json.dumps({
        "format": "crtexport-model", "version": 1, "name": MODEL,
        "inputs": INPUTS, "outputs": OUTPUTS,
        "tensors": [
            {"name": name, "dtype": "float32", "shape": [1, 4]} for name in [*INPUTS, *OUTPUTS]
        ],
        "nodes": [
            {"op": "Relu", "inputs": [given], "outputs": [made]}
            for given, made in zip(INPUTS, OUTPUTS, strict=True)
        ],
    }), encoding="utf-8")
    return path


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    path = tmp_path / "inputs.npz"
    save_npz(path, dict.fromkeys(INPUTS, VALUES))
    return path


def check(outputs: Path) -> None:
    with np.load(outputs) as found:
        assert len(found.files) == len(OUTPUTS)
        for array in found.values():
            assert array.tolist() == [[0, 0, 1, 2]]


@pytest.mark.qemu
def test_on_a_board(model: Path, arrays: Path, tmp_path: Path) -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        require(tool)
    package, saved = str(tmp_path / "p.tar"), tmp_path / "y.npz"
    given = ["--input", str(arrays)]
    assert main([str(model), "--board", "mps2_an386", "-o", package, "--run", "-q", *given]) == 0
    assert main(["run", package, "--model", MODEL, "-q", "--output", str(saved), *given]) == 0
    check(saved)
    assert main(["bench", str(model), "--board", "mps2_an386", "-q", *given]) == 0


def test_on_this_computer(model: Path, arrays: Path, tmp_path: Path) -> None:
    require("gcc")
    package, saved = tmp_path / "p.tar", tmp_path / "y.npz"
    given = ["--input", str(arrays)]
    assert main([str(model), "--board", "host", "-o", str(package), "-q"]) == 0
    words = ["simulate", str(package), "--model", MODEL, "-q", "--output", str(saved)]
    assert main([*words, *given]) == 0
    check(saved)
    for stage in ("graph", "lowered", "plan", "picture", "kernels", "c", "llvm"):
        assert main(["inspect", str(model), "--stage", stage, "-q"]) == 0
    assert main(["inspect", str(package), "-q"]) == 0
    assert main(["unpack", str(package), str(tmp_path / "unpacked"), "-q"]) == 0
    assert main(["convert", str(model), "-o", str(tmp_path / "again.json"), "-q"]) == 0
    assert crtexport.load(tmp_path / "again.json").name == MODEL


def test_of_several_models(model: Path, tmp_path: Path) -> None:
    package = crtexport.export(
        [model, model], module_name=["First.one", "2nd/one"], system_lib=False,
        output=tmp_path / "p.tar",
    ).path
    given = {f"{name}/{key}": VALUES for name in ("First.one", "2nd/one") for key in INPUTS}
    results = crtexport.simulate_all(package, given)
    assert list(results) == ["first_one", "2nd_one"]
    for (row,) in results.values():
        assert [array.tolist() for array in row.values()] == [[[0, 0, 1, 2]]] * len(OUTPUTS)
    with pytest.raises(crtexport.support.errors.CrtExportError, match="two arrays"):
        crtexport.simulate_all(package, {**given, f"first_one/{INPUTS[0]}": VALUES})


@pytest.mark.parametrize("format_", ["json", "tflite", "onnx"])
def test_a_files_name_may_be_any_bytes(
    format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"folder\xfe")
    folder.mkdir()
    model = folder / os.fsdecode(b"m\xff\"$(touch there)." + format_.encode())
    if format_ == "json":
        data = json.loads(DIGITS.read_text(encoding="utf-8"))
        del data["name"]
        model.write_text(json.dumps(data), encoding="utf-8")
        sidecar = DIGITS.with_suffix(".safetensors")
        (folder / sidecar.name).write_bytes(sidecar.read_bytes())
    else:
        model.write_bytes(CLASSIFIER if format_ == "onnx" else to_tflite(crtexport.load(DIGITS)))
    package, written = folder / "p.tar", folder / "d"
    words = [str(model), "--board", "host", "--emit", "c", "-o", str(package), "-q"]
    assert main([*words, "--depfile", str(written), "--unpack", str(folder / "out")]) == 0
    assert b"m\xff" in written.read_bytes()
    assert main(["inspect", str(package)]) == 0
    assert "m_udcff_touch_there" in capsys.readouterr().out
    assert main(["report", str(model), "-q", "-o", str(folder / "r.html")]) == 0
    assert main(["convert", str(model), "-q", "-o", str(folder / "again.json")]) == 0
    assert main(["build", str(package), "-q", "-o", str(folder / "b"), "--format", "cmake"]) == 0
    assert not [*tmp_path.rglob("there")]
