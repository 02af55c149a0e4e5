"""``crtexport verify``"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from crtexport import verification
from crtexport.cli.main import main
from crtexport.importers.formats import InputChoices
from crtexport.verification import (
    LayerComparison,
    LayersResult,
    OutputComparison,
    OutputDifference,
    VerifyResult,
)
from tests.cli.support import DIGITS
from tests.helpers import require_reference


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_the_example_agrees_with_the_reference(
    emit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require_reference()
    arguments = ["verify", str(DIGITS), "--samples", "4", "--seed", "7", "--emit", emit]
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["agrees"] is True
    assert data["samples"] == 4
    assert data["reference"].startswith("tflite-runtime")
    assert [output["largest_difference"] for output in data["outputs"]] == [0.0]


@pytest.mark.parametrize("difference", [3.0, math.inf])
def test_a_difference_is_shown_and_fails(
    difference: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = VerifyResult(
        "reference 1", "host (c)", 10,
        (OutputComparison("good", "int8", 0.0, 0.0, 0),
         OutputComparison("bad", "int8", difference, 0.0, 2)),
    )
    monkeypatch.setattr(verification, "verify", lambda *_, **__: result)
    assert main(["verify", str(DIGITS)]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "reference: reference 1" in lines
    assert "good int8 0 0 0 agrees" in lines
    assert any(line.startswith("bad int8") and line.endswith("2 DIFFERS") for line in lines)
    assert main(["verify", str(DIGITS), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [output["agrees"] for output in data["outputs"]] == [True, False]


def test_options_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, object]] = []

    def verify(*_: object, **options: object) -> VerifyResult:
        seen.append(options)
        return VerifyResult("r", "b", 1, ())

    monkeypatch.setattr(verification, "verify", verify)
    assert main(["verify", str(DIGITS), "--board", "qemu_x86", "--rounding", "single", "-q",
                 "--accelerator", "cmsis-nn", "--dim", "n=3", "--weights", "packed",
                 "--optimize", "size", "--tuning", "t.json", "--timeout", "7"]) == 0
    assert seen == [
        {"board": "qemu_x86", "samples": 10, "seed": 0, "numerics": "litert", "emit": None,
         "io": "caller", "accelerators": ("cmsis-nn",), "choices": InputChoices(dims={"n": 3}),
         "weights": "packed", "optimize": "size", "tuning": Path("t.json"), "timeout": 7.0}
    ]


def test_no_samples_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DIGITS), "--samples", "0"]) == 2
    assert "--samples" in capsys.readouterr().err


def test_every_operator_of_the_example_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    require_reference()
    assert main(["verify", str(DIGITS), "--per-layer", "--samples", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["first_difference"] is None
    assert [layer["output"]["name"] for layer in data["layers"]] == [
        "conv1", "pool", "conv2", "flatten", "logits", "probabilities"
    ]
    assert all(layer["output"]["agrees"] for layer in data["layers"])


def test_the_first_operator_that_differs_is_shown_with_both_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = LayersResult(
        "reference 1", "host (c)", 2,
        (LayerComparison("operator 0 (ABS)", OutputComparison("a", "int8", 0.0, 0.0, 0), (1, 4)),
         LayerComparison("operator 1 (NEG)", OutputComparison("b", "int8", 3.0, 0.0, 2), (1, 4),
                         OutputDifference(1, (0, 2), -12.0, -9.0)),
         LayerComparison("operator 2 (EXP)", OutputComparison("c", "int8", 5.0, 0.0, 2), (1, 4),
                         OutputDifference(0, (0, 0), 5.0, 0.0))),
    )
    monkeypatch.setattr(verification, "verify_layers", lambda *_, **__: result)
    assert main(["verify", str(DIGITS), "--per-layer"]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "the first that differs is operator 1 (NEG)" in lines
    assert "element: [0, 2] of sample 1" in lines
    assert "exported: -12" in lines
    assert "reference: -9" in lines
    assert not any("EXP" in line for line in lines)
    assert main(["verify", str(DIGITS), "--per-layer", "-v"]) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "operator 0 (ABS) a int8[1, 4] 0 0 agrees own" in lines
    assert "operator 2 (EXP) c int8[1, 4] 5 0 DIFFERS own" in lines
    assert main(["verify", str(DIGITS), "--per-layer", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["first_difference"]["first"] == {
        "sample": 1, "position": [0, 2], "exported": -12.0, "reference": -9.0
    }
    assert [layer["output"]["largest_difference"] for layer in data["layers"]] == [0, 3, 5]
