"""``crtexport bench``"""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from crtexport.cli.main import main
from crtexport.firmware.spent import Cycles
from crtexport.reports.bench import Bench
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.peers import PeerFigure
from tests.cli.support import DIGITS
from tests.reports.benches import layer, result


def test_the_command_prints_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("crtexport.cli.bench.bench", lambda *_, **__: result(layer("a", 100)))
    assert main(["bench", str(DIGITS), "--board", "mps2_an386", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["benches"]
    assert data["layers"][0]["per_mac"] == 2.0
    assert data["startup"] == 0


def test_the_table_names_layers_totals_and_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = PeerFigure(
        model="m", board="b", peer="Other", instructions=4000, flash=20, source="tflm"
    )
    measured = result(layer("conv", 100), peers=(peer,))
    monkeypatch.setattr("crtexport.cli.bench.bench", lambda *_, **__: measured)
    assert main(["bench", str(DIGITS), str(DIGITS), "--board", "mps2_an386"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "conv 1x2x2x4 50 100 2.00 10 20" in lines
    assert "Other 4,000 0.25× - - - 20 0.50× -" in lines
    assert "net.tflite mps2_an386 1,000 20.00 Other 0.25× 10 64" in lines


def test_cycles_stand_beside_those_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = tuple(
        PeerFigure(model="m", board="b", peer=name, instructions=2000, cycles=cycles, source="tflm")
        for name, cycles in (("Known", 5000), ("Other", None))
    )
    measured = replace(result(layer("conv", 100), peers=peers), cycles=Cycles(1100, 1250, 1500))
    monkeypatch.setattr("crtexport.cli.bench.bench", lambda *_, **__: measured)
    assert main(["bench", str(DIGITS), "--board", "mps2_an386"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Known 2,000 0.50× 5,000 0.25× - - - -" in lines
    assert "Other 2,000 0.50× - - - - - -" in lines


def test_accelerators_stand_beside_our_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(setting: MeasureSetting) -> Bench:
        accelerators = tuple(setting.options.accelerators or ())
        cost = 300 if accelerators else 100
        return replace(result(layer("conv", cost)), second=cost, accelerators=accelerators)

    monkeypatch.setattr("crtexport.cli.bench.bench", measured)
    arguments = ["bench", str(DIGITS), "--accelerator", "cmsis-nn", "--board"]
    assert main([*arguments, "mps2_an386"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "layer MACs our own with ours is" in lines
    assert "conv 50 100 300 0.33×" in lines
    assert "total 50 100 300 0.33×" in lines
    assert main([*arguments, "host"]) == 2
    assert "are for boards in QEMU, not host" in capsys.readouterr().err
