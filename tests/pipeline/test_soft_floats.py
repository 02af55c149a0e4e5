"""Exports and reports say what floats cost where a processor has no instructions for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtexport.cli.main import main
from crtexport.pipeline import driver
from crtexport.reports.bench import bench
from crtexport.reports.measure import MeasureSetting
from tests.cli.support import DIGITS
from tests.helpers import require
from tests.tflite_builder import ModelBuilder

MACS = 24 * 10 + 10 * 3 * 4
"""Of :func:`model`: a layer of 10 channels for 24 values, and a 1x1 convolution of 3 pixels."""


def model(path: Path, dtype: str = "float32") -> Path:
    """Writes a network of two layers of floats; the first one has weights of ``dtype``."""
    m, rng = ModelBuilder(), np.random.default_rng(5)
    x = m.tensor("x", (1, 24), "float32")
    y, z = m.tensor("y", (1, 10), "float32"), m.tensor("z", (1, 10), "float32")
    image, result = m.tensor("image", (1, 3, 1, 10)), m.tensor("result", (1, 3, 1, 4))
    if dtype == "float32":
        w = m.tensor("w", (10, 24), data=rng.standard_normal((10, 24)).astype(np.float32))
    else:
        w = m.tensor("w", (10, 24), dtype, scale=0.02, data=rng.integers(-127, 128, (10, 24)))
    v = m.tensor("v", (4, 1, 1, 10), data=rng.standard_normal((4, 1, 1, 10)).astype(np.float32))
    m.op("FULLY_CONNECTED", [x, w], [y])
    m.op("TANH", [y], [z])
    m.op("CONV_2D", [image, v], [result])
    path.write_bytes(m.build([x, image], [z, result]))
    return path


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(("board", "processor"), [
    ("qemu_riscv32", "generic-rv32"), ("esp32c3", "generic-rv32"), ("mps2_an385", "cortex-m3"),
    ("qemu_cortex_m0", "cortex-m0"), ("rpi_pico", "cortex-m0plus"),
    ("mps2_an521", "cortex-m33"), ("arduino_mega2560", "atmega2560"),
])
def test_an_export_says_that_floats_are_computed_in_software(
    board: str, processor: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "net.tflite", dtype)
    words = [str(path), "--board", board, "-o", str(tmp_path / "net.tar")]
    for more in ([], ["--json"]):
        assert main([*words, *more]) == 0
        said = capsys.readouterr().err
        assert said.count("note: ") == 1
        assert f"note: {MACS} multiply-accumulates are of floats, which {processor} " in said
        assert "`crtexport quantize`" in said
    assert main([*words, "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("board", [
    "mps2_an386", "mps2_an500", "mps2_an505", "mps3_an547", "qemu_riscv32_v", "qemu_x86", "esp32",
    "host",
])
def test_processors_with_instructions_for_floats_need_no_note(
    board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "net.tflite")
    assert main([str(path), "--board", board, "-o", str(tmp_path / "net.tar")]) == 0
    assert capsys.readouterr().err == ""


def test_integers_need_no_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(DIGITS), "--board", "qemu_riscv32", "-o", str(tmp_path / "digits.tar")]
    assert main(words) == 0
    assert capsys.readouterr().err == ""


def test_of_several_models_each_one_with_floats_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model(tmp_path / "net.tflite")
    words = [str(DIGITS), str(path), "--board", "mps2_an385", "-o", str(tmp_path / "two.tar")]
    assert main(words) == 0
    assert capsys.readouterr().err.startswith(f"note: net: {MACS} multiply-accumulates")


def test_a_report_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(tmp_path / "net.tflite")

    def warned(board: str) -> list[str]:
        assert main(["report", str(path), "--board", board, "--json"]) == 0
        data: dict[str, Any] = json.loads(capsys.readouterr().out)
        return [one["why"] for one in data["findings"] if one["what"] == "floats"]

    (why,) = warned("mps2_an385")
    assert why.startswith(f"{MACS} multiply-accumulates are of floats")
    assert warned("mps2_an386") == []


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["qemu_riscv32", "mps2_an385", "qemu_cortex_m0"])
def test_products_take_what_is_said(
    board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted in the emulator, of a network of nothing else."""
    require({"qemu_riscv32": "riscv64-unknown-elf-gcc"}.get(board, "arm-none-eabi-gcc"))
    require("qemu-system-riscv32" if board == "qemu_riscv32" else "qemu-system-arm")
    m, rng = ModelBuilder(), np.random.default_rng(6)
    x, y = m.tensor("x", (1, 40), "float32"), m.tensor("y", (1, 24), "float32")
    w = m.tensor("w", (24, 40), data=rng.standard_normal((24, 40)).astype(np.float32))
    m.op("FULLY_CONNECTED", [x, w], [y])
    path = tmp_path / "dense.tflite"
    path.write_bytes(m.build([x], [y]))
    assert main([str(path), "--board", board, "-o", str(tmp_path / "dense.tar")]) == 0
    found = re.search(r"about (\d+) instructions each", capsys.readouterr().err)
    assert found is not None
    counted = bench(MeasureSetting(path, board, driver.ExportOptions())).layers[0]
    assert counted.macs == 24 * 40
    assert counted.instructions is not None
    assert abs(int(found[1]) / (counted.instructions / counted.macs) - 1) < 0.25
