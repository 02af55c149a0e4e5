"""A network that is trained, quantized and exported predicts in QEMU what ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import accuracy
from tests.helpers import require, require_environment, unavailable


def test_digits_are_as_right_on_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("gcc", "arm-none-eabi-gcc", "qemu-system-arm"):
        require(tool)
    python = require_environment("onnx", "torch", "onnxscript", "sklearn", "onnxruntime")
    flags = Path("/proc/cpuinfo")
    if not flags.is_file() or "vnni" not in flags.read_text(encoding="ascii"):
        unavailable("vnni", "without VNNI, ONNX Runtime's products saturate in 16 bits")
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", python)
    accuracy.train(python, tmp_path, ["digits"])
    found = accuracy.measure(tmp_path, "digits", "mps2_an386")
    assert found.samples == 360
    assert found.exact > 330
    assert abs(found.board - found.exact) <= 4
    assert (found.other, found.differing) == (0, 0)
    assert found.board == found.runtime
    assert found.constants[1] < found.constants[0] / 3
    assert found.workspace[1] < found.workspace[0] / 3
