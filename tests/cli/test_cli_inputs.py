"""Files that are none: a command that is given a pipe or a device says so, and neither waits for
whoever may write into it nor reads what has no end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import DIGITS, exported
from tests.helpers import ROOT

PACKAGES = (
    ["inspect"], ["unpack", "OTHER", "out"], ["run"], ["simulate"], ["build", "OTHER", "-o", "out"],
    ["report"],
)
ARRAYS = (["simulate", "PACKAGE", "--input"], ["run", "PACKAGE", "--input"])
WORDS = [
    *(words if "OTHER" in words else [*words, "OTHER"] for words in (*PACKAGES, *ARRAYS)),
    [str(DIGITS), "-q", "-o", "x.tar", "--run", "--input", "OTHER"],
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("package"), board="host", emit="c")


def said(words: list[str], folder: Path) -> tuple[int, str]:
    """A command's exit code and its words about a mistake."""
    done = subprocess.run(
        (sys.executable, "-m", "crtexport", *words), cwd=folder, text=True, timeout=60,
        capture_output=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words[:1] + words[2:3]))
def test_what_is_read_in_any_order_is_a_regular_file(
    words: list[str], kind: str, package: Path, tmp_path: Path
) -> None:
    other = "/dev/zero"
    if kind == "pipe":
        other = "pipe"
        os.mkfifo(tmp_path / other)
    before = sorted(tmp_path.iterdir())
    names = {"OTHER": other, "PACKAGE": str(package)}
    code, text = said([names.get(word, word) for word in words], tmp_path)
    assert code == 2
    assert f"error: {other}: " in text
    assert "this is not a regular file" in text
    assert "save what comes through a pipe to" in text
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("words", [
    [str(DIGITS), "-q", "-o", "x.tar", "--board", "/dev/zero"], ["diff", "/dev/zero", "/dev/zero"],
    [str(DIGITS), "-q", "-o", "x.tar", "--tuning", "/dev/zero"],
], ids=["board", "report", "tuning"])
def test_what_is_read_from_its_beginning_may_not_be_endless(
    words: list[str], tmp_path: Path
) -> None:
    code, text = said(words, tmp_path)
    assert code == 2
    assert "too large for" in text
    assert not [*tmp_path.iterdir()]


def test_a_board_may_come_through_a_pipe(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"name: b\ndescription: d\nextends: mps2_an386\n")
    os.close(theirs)
    done = subprocess.run(
        (sys.executable, "-m", "crtexport", "boards", f"/dev/fd/{ours}"), cwd=tmp_path, text=True,
        capture_output=True, check=False, pass_fds=[ours],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(ours)
    assert done.returncode == 0, done.stderr
    assert "cortex-m4" in done.stdout
