"""Damaged files give a network or a clean error; ``python -m tests.fuzz.importers`` tries more."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crtexport.firmware.board import Board, load_board
from crtexport.support.errors import ToolMissingError
from tests.fuzz import attempt as attempts
from tests.fuzz.attempt import attempt
from tests.fuzz.corpus import Seed, controlled, example, onnx_networks, operators
from tests.fuzz.mutate import mutant
from tests.fuzz.pool import Outcome, Tally

NETWORKS = (
    ("conv_2d", "int8"), ("fully_connected", "int16"), ("softmax", "float32"),
    ("concatenation", "int8"), ("mean", "uint8"), ("read_variable", "int8"),
    ("strided_slice", "int8"), ("add", "int32"),
)
COUNT = 300


@pytest.fixture(scope="module")
def seeds() -> list[Seed]:
    return [
        example(), *operators(NETWORKS), *controlled(("branch", "collatz", "remembering")),
        *onnx_networks(),
    ]


@pytest.fixture(scope="module")
def boards() -> list[Board]:
    return [load_board("host"), load_board("qemu_cortex_m0")]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_damaged_files_are_refused_cleanly_or_exported(
    seeds: list[Seed], boards: list[Board], tmp_path: Path
) -> None:
    tally = Tally()
    for number in range(COUNT):
        outcome = attempt(mutant(seeds, number), tmp_path, boards)
        tally.add(outcome)
        assert not outcome.finding, f"mutant {number}: {outcome.finding}\n{outcome.detail}"
    # Both kinds of ends are reached, or nothing was tried.
    assert tally.reached["refused"] > COUNT / 4
    assert tally.reached["exported"] > COUNT / 50


def test_whole_files_are_exported(seeds: list[Seed], boards: list[Board], tmp_path: Path) -> None:
    for seed in seeds:
        assert attempt(seed, tmp_path, boards).reached == "exported", seed.name


def test_a_mutant_is_the_same_every_time_and_no_two_are_alike(seeds: list[Seed]) -> None:
    assert mutant(seeds, 7) == mutant(seeds, 7)
    assert len({mutant(seeds, number).content for number in range(40)}) > 20


def broken(monkeypatch: pytest.MonkeyPatch, stage: str, effect: object) -> None:
    def fail(*_: object) -> object:
        if isinstance(effect, BaseException):
            raise effect
        return effect() if callable(effect) else effect

    monkeypatch.setattr(attempts, stage, fail)


@pytest.mark.parametrize("stage", ["load", "prepare", "emit_c"])
@pytest.mark.parametrize("error", [KeyError("x"), ToolMissingError("x"), MemoryError()])
def test_other_errors_are_findings(
    stage: str, error: Exception, seeds: list[Seed], boards: list[Board], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch, stage, error)
    outcome = attempt(seeds[0], tmp_path, boards)
    assert outcome.finding.startswith(type(error).__name__)
    assert type(error).__name__ in outcome.detail


def test_hunger_and_slowness_are_findings(
    seeds: list[Seed], boards: list[Board], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SECONDS", 1)
    monkeypatch.setattr(attempts, "prepare", lambda *_: time.sleep(5))
    assert attempt(seeds[0], tmp_path, boards).finding.startswith("_TooSlowError")
    broken(monkeypatch, "load", lambda: bytes(32 << 20) and None)
    assert attempt(seeds[0], tmp_path, boards).finding == "memory"


def test_a_tally_tells_kinds_apart() -> None:
    tally = Tally()
    assert not tally.add(Outcome("refused"))
    assert tally.add(Outcome("refused", "KeyError in a.py:1"))
    assert not tally.add(Outcome("refused", "KeyError in a.py:1"))
    assert "2 x KeyError" in str(tally)
    assert str(tally).startswith("3 files: 3 refused")
