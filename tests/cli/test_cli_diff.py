"""``crtexport diff``: what changed, and exit code 1 beyond a limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crtexport.cli.main import main
from crtexport.pipeline import driver
from tests.cli.support import DIGITS

BOARD = "mps2_an386"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reports of two exports, as ``fast.json`` and ``small.json``."""
    folder = tmp_path_factory.mktemp("reports")
    for name, optimize in (("fast", "speed"), ("small", "size")):
        with pytest.MonkeyPatch.context() as patch:
            said: list[str] = []
            patch.setattr("sys.stdout.write", said.append)
            words = ["report", str(DIGITS), "--board", BOARD, "--optimize", optimize, "--json"]
            assert main(words) == 0
        (folder / f"{name}.json").write_text("".join(said))
    return folder


def test_figures_and_layers_are_compared(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, small = reports / "fast.json", reports / "small.json"
    assert main(["diff", str(fast), str(small), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    one, other = (json.loads(path.read_text())["totals"] for path in (fast, small))
    for figure in data["figures"]:
        what = figure["what"]
        assert (figure["before"], figure["after"]) == (one[what], other[what])
        assert figure["more"] == other[what] - one[what]
    assert data["layers"]
    assert "optimization: speed → size" in data["notes"]
    assert main(["diff", str(fast), str(small)]) == 0
    assert "optimization: speed → size" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("a", "b", "options", "code"),
    [
        ("fast", "small", ("--max-flash", "+0"), 0),
        ("small", "fast", ("--max-flash", "+0"), 1),
        ("small", "fast", ("--max-flash", "+10000%"), 0),
        ("small", "fast", ("--max-flash", "+1MiB"), 0),
        ("small", "fast", ("--max-flash", "1MiB"), 0),
        ("small", "fast", ("--max-flash", "512B"), 1),
        ("fast", "small", ("--max-instructions", "+2.5%"), 1),
        ("small", "fast", ("--max-instructions", "+2.5%"), 0),
        ("fast", "fast", ("--max-flash", "+0%", "--max-ram", "+0", "--max-stack", "+0",
                          "--max-macs", "+0", "--max-code", "+0", "--max-weights", "+0",
                          "--max-workspace", "+0", "--max-instructions", "+0"), 0),
    ],
)
def test_limits_decide_the_exit_code(
    a: str, b: str, options: tuple[str, ...], code: int, reports: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["diff", str(reports / f"{a}.json"), str(reports / f"{b}.json"), *options]
    assert main(words) == code
    assert ("above" in capsys.readouterr().out) == bool(code)
    assert main([*words, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["within"] == (not code)


def test_packages_are_compared_as_well(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = driver.export(DIGITS, board=BOARD, output=tmp_path / "x.tar", optimize="speed")
    fast = str(reports / "fast.json")
    assert main(["diff", fast, str(made.path), "--max-flash", "+0", "--max-ram", "+0"]) == 0
    capsys.readouterr()
    assert main(["diff", fast, str(made.path), "--max-macs", "+0", "--max-instructions", "+0"]) == 0
    driver.export(DIGITS, board=BOARD, output=made.path, optimize="speed", emit="c")
    capsys.readouterr()
    assert main(["diff", fast, str(made.path), "--max-code", "+0"]) == 2
    assert "the reports don't know this figure" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["2%", "+x", "-3", "+2 %", "", "+-1", "+1KiB"])
def test_bad_limits_are_refused(
    text: str, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = str(reports / "fast.json")
    assert main(["diff", fast, fast, f"--max-instructions={text}"]) == 2
    assert "is no limit" in capsys.readouterr().err


def test_estimates_have_no_limit_against_counts(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads((reports / "fast.json").read_text())
    data["totals"]["instructions_are"] = "counted"
    (tmp_path / "counted.json").write_text(json.dumps(data))
    words = ["diff", str(reports / "fast.json"), str(tmp_path / "counted.json")]
    assert main([*words, "--max-instructions", "+9%"]) == 2
    assert "counted in one report and estimated in the other" in capsys.readouterr().err
    assert main(words) == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "other"}, "this is not a report"),
        ({"version": 99}, "the report has version 99"),
        ({"totals": {"flash": "x"}}, "the report is damaged"),
        ({"layers": [{}]}, "the report is damaged"),
    ],
)
def test_damaged_reports_are_refused(
    change: dict[str, Any], problem: str, reports: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = json.loads((reports / "fast.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps({**data, **change}))
    assert main(["diff", str(reports / "fast.json"), str(tmp_path / "x.json")]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_other_files_are_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert main(["diff", str(tmp_path / "x.json"), str(tmp_path / "x.json")]) == 2
    assert "report" in capsys.readouterr().err
