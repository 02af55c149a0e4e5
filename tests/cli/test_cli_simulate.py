"""``crtexport simulate``"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.cli.main import main
from tests.cli.support import DIGITS, DIGITS_IMAGES, exported, hits
from tests.helpers import require


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("simulate"), emit="llvm")


def test_the_example_is_read(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(package), "--input", str(DIGITS_IMAGES), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["inputs"] == str(DIGITS_IMAGES)
    assert hits(data["outputs"]) >= 11


def test_c_sources_give_the_same(package: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    require("gcc")
    sources = exported(tmp_path, board="mps2_an386", emit="c")
    answers = []
    for each in (package, sources):
        assert main(["simulate", str(each), "--input", str(DIGITS_IMAGES), "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["outputs"])
    assert answers[0] == answers[1]


def test_without_inputs_the_pattern_is_named(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", str(package)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("inputs: a fixed pattern (1 sample)\n")
    assert "largest at" in text


def test_outputs_are_kept(package: Path, tmp_path: Path) -> None:
    saved = tmp_path / "y.npz"
    assert main(["simulate", str(package), "-q", "--output", str(saved)]) == 0
    with np.load(saved) as one:
        ((name, array),) = one.items()
    arguments = ["simulate", str(package), "-q", "--output", str(saved)]
    assert main([*arguments, "--input", str(DIGITS_IMAGES)]) == 0
    with np.load(saved) as several:
        assert several[name].shape == (12, *array.shape)
        assert several[name].dtype == array.dtype


def test_inputs_that_do_not_fit_are_refused(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "x.npz", picture=np.zeros(3))
    assert main(["simulate", str(package), "--input", str(tmp_path / "x.npz")]) == 2
    error = capsys.readouterr().err
    assert "there is no array for this input" in error
    assert "hint: the inputs are: " in error


def test_objects_for_another_machine_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = exported(tmp_path, board="mps2_an386", emit="llvm")
    assert main(["simulate", str(other)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")


@pytest.mark.parametrize("models", [1, 2])
def test_code_for_devices_is_read_whatever_the_package_calls(
    models: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crtexport.export(
        [DIGITS] * models, emit="c", output=tmp_path / "p.tar",
        module_name=["first", "second"][:models],
    )
    words = ["simulate", str(tmp_path / "p.tar"), "--device-code", str(tmp_path / "gone.c")]
    assert main(words) == 2
    assert "gone.c: the code for devices can't be read" in capsys.readouterr().err
