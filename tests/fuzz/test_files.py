"""Damaged files of all kinds through the commands; ``python -m tests.fuzz.files`` tries more."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.fuzz import pool, sandbox
from tests.fuzz.cases import Case, case, corpus
from tests.fuzz.corpus import controlled, example
from tests.fuzz.pool import Outcome, Tally
from tests.helpers import ROOT

COUNT = 128


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )


def test_damaged_files_end_in_words_and_touch_nothing_else() -> None:
    ended = command("tests.fuzz.files", "--few", "--count", str(COUNT))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith(f"{COUNT} files: ")
    assert "no finding" in ended.stdout
    # Both ends are reached, or nothing was tried.
    for kind in (".tflite", "model.json", "board", "safetensors", "package"):
        assert f"{kind} refused" in ended.stdout
    assert "package done" in ended.stdout
    assert ".tflite done" in ended.stdout


def test_a_case_is_the_same_every_time() -> None:
    sound = corpus([example(), *controlled(("branch",))])
    for number in range(8):
        assert case(sound, number) == case(sound, number)
    assert {case(sound, number).kind for number in range(40)} >= {
        ".tflite", "safetensors", "board", "package"
    }


def tried(effect: Callable[[list[str]], int], seconds: float = 10) -> tuple[Tally, Outcome]:
    """Returns what comes of a command that is ``effect``, in a process of its own."""

    def serve(numbers: range, tell: Callable[[Outcome], None]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            box = sandbox.Sandbox(Path(folder) / "root")
            sandbox.main = lambda arguments=None: effect([*(arguments or ())])
            for _ in numbers:
                tell(box.attempt(Case("any", "x", {"file": b"x"}, ("{in}/file", "{out}"))))

    tally = Tally()
    found: list[Outcome] = []
    pool.run(serve, range(1), tally, lambda _, outcome: found.append(outcome), seconds=seconds)
    return tally, found[0] if found else Outcome("nothing")


def write(name: str, arguments: list[str]) -> int:
    Path(arguments[1], name).write_text("x", encoding="utf-8")
    return 0


def program(name: str, arguments: list[str]) -> int:
    return subprocess.run(["touch", str(Path(arguments[1], name))], check=True).returncode


def link(arguments: list[str]) -> int:
    Path(arguments[1], "there").symlink_to(Path(arguments[1]).parent / "precious")
    return write("there/notes.txt", arguments)


def traceback(_: list[str]) -> int:
    sys.stderr.write('Traceback (most recent call last):\n  File "/x/crtexport/a.py", line 3\n')
    sys.stderr.write("KeyError: 1\n")
    return 1


def hungry(_: list[str]) -> int:
    return len(bytes(sandbox.MEMORY)) * 0


def where_nothing_is(arguments: list[str]) -> int:
    """Starts Python in a folder that has been removed, where no relative path leads anywhere."""
    folder = Path(arguments[1], "gone")
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()
    return subprocess.run([sys.executable, "-P", "-c", "import crtexport"], check=False).returncode


def removing(arguments: list[str]) -> int:
    Path(arguments[0]).unlink()
    return 0


@pytest.mark.parametrize(
    ("effect", "finding"),
    [
        (partial(write, "../precious/notes.txt"), "any: touched open"),
        (partial(write, "../../new"), "any: touched open"),
        (partial(program, "../precious/new"), "any: another program touched files"),
        (link, "any: touched open"),
        (removing, "any: touched os.remove"),
        (lambda _: 70, "any: internal error"),
        (lambda _: -11, "any: internal error"),
        (traceback, "any: traceback in a.py:3 (KeyError)"),
        (hungry, "died with 1"),
        (lambda _: os._exit(5), "died with 5"),
    ],
)
def test_what_must_not_be_is_found(effect: Callable[[list[str]], int], finding: str) -> None:
    tally, outcome = tried(effect)
    assert outcome.finding == finding
    assert tally.findings == {finding: 1}


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_words_and_files_below_the_output_are_none(code: int) -> None:
    tally, outcome = tried(lambda arguments: write("new", arguments) or code)
    assert outcome == Outcome("nothing")
    assert not tally.findings
    assert tally.tried == 1


def test_programs_find_python_where_the_folder_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", ".")
    tally, outcome = tried(where_nothing_is)
    assert outcome == Outcome("nothing")
    assert tally.reached == {"any done": 1}


def test_who_never_answers_is_found() -> None:
    def hang(_: list[str]) -> int:
        while True:
            pass

    _, outcome = tried(hang, seconds=2)
    assert outcome.finding == "stuck"


def test_tensors_that_nothing_could_hold_take_little_to_refuse_or_export() -> None:
    ended = command("tests.fuzz.huge", "--few")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "no finding" in ended.stdout
    assert "huge done" in ended.stdout
    assert "huge refused" in ended.stdout
