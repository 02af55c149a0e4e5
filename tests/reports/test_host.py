"""Timing on this computer: what is compared computes, and what is missing is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from crtexport.cli.main import main
from crtexport.reports import host
from crtexport.reports.host import bench_host
from crtexport.simulation.runtimes import find_runtime
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from tests.cli.support import DIGITS
from tests.helpers import require, require_module, shared_model, unavailable


def needs_a_runtime() -> None:
    require("gcc")
    _, lacking = host._python()
    if lacking:
        unavailable("runtime", lacking)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_a_network_is_timed_beside_the_runtime(emit: str) -> None:
    needs_a_runtime()
    result = bench_host(shared_model("ad01_int8"), emit="c" if emit == "c" else "llvm", rounds=3)
    assert result.timings[0].name == "crtexport"
    assert len(result.timings) == 2
    assert result.timings[0].ratio == 1.0
    assert result.macs == 264192
    assert result.constants > result.macs
    assert result.workspace > 0
    assert all(0 < t.low <= t.median <= t.high for t in result.timings)
    assert result.missing == ()


def test_a_runtime_that_can_not_load_the_network_is_named(tmp_path: Path) -> None:
    needs_a_runtime()
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    result = bench_host(DIGITS, onnx=broken, rounds=1)
    assert [t.name for t in result.timings] == ["crtexport"]
    (text,) = result.missing
    assert text.startswith("onnx: ")


def test_other_boards_are_not_timed_here() -> None:
    with pytest.raises(CrtExportError, match="not this computer"):
        bench_host(DIGITS, board="qemu_x86")


def test_without_another_runtime_ours_is_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    require("gcc")

    def missing(name: str) -> NoReturn:
        raise ToolMissingError(f"{name} is not installed", hint="pip install it")

    monkeypatch.setattr(host, "find_runtime", missing)
    result = bench_host(shared_model("ad01_int8"), rounds=1)
    assert [t.name for t in result.timings] == ["crtexport"]
    assert result.missing == ("ai-edge-litert is not installed (pip install it)",)


def test_a_python_that_is_not_there_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    require("gcc")
    monkeypatch.setenv("CRTEXPORT_LITERT_PYTHON", "/nowhere/python")
    with pytest.raises(ToolMissingError, match="/nowhere/python") as caught:
        bench_host(DIGITS, rounds=1)
    assert "CRTEXPORT_LITERT_PYTHON" in str(caught.value)


def test_a_failing_worker_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_a_runtime()
    monkeypatch.setattr(host, "_link", lambda *_: Path("/nowhere/model.so"))
    with pytest.raises(RunFailedError, match=r"model\.so"):
        bench_host(DIGITS, rounds=1)


def test_the_python_of_litert_is_asked_first(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRTEXPORT_LITERT_PYTHON", "/some/python")
    assert host._python() == (find_runtime("ai-edge-litert").python, "") == ("/some/python", "")


def test_ratios_are_of_the_same_round() -> None:
    timing = host._timing("other", [2.0, 4.0, 8.0], [1.0, 2.0, 4.0])
    assert timing.median == 4.0
    assert (timing.ratio, timing.ratio_low, timing.ratio_high) == (0.5, 0.5, 0.5)


def timed() -> host.HostBench:
    timings = (host._timing("crtexport", [1e3], [1e3]), host._timing("LiteRT", [2e3], [1e3]))
    return host.HostBench(
        "net", "host", "c", "speed", 1, timings, ("onnx: no module",), "0" * 64, 1000, 64, 0, 77
    )


def test_times_alone_make_a_chart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require_module("matplotlib")
    monkeypatch.setattr("crtexport.cli.bench.bench_host", lambda *_, **__: timed())
    picture = tmp_path / "chart.svg"
    assert main(["bench", str(DIGITS), "--board", "host", "--chart", str(picture)]) == 0
    assert "LiteRT" in picture.read_text(encoding="utf-8")


def test_the_command_prints_the_table_and_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = timed()
    monkeypatch.setattr("crtexport.cli.bench.bench_host", lambda *_, **__: result)
    assert main(["bench", str(DIGITS), "--board", "host"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "LiteRT 2.0 2.0 2.0 2.000 0.50× 0.50 0.50" in lines
    assert "bytes of constants 77" in lines
    assert "not there: onnx: no module" in lines
    assert main(["bench", str(DIGITS), "--board", "host", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["timings"][0]["timings"][1]["median"] == 2000.0
