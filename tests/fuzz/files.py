"""Damaged models, constants, boards and packages through the commands that read them.

``python -m tests.fuzz.files --minutes 60`` gives one after the other to a command and watches it:
no traceback, no 20 seconds, no 1 GB of memory, no file touched outside of its output. It exits with
1 if it found something; ``--keep FOLDER`` keeps the files behind each finding, ``--first N`` goes
on with number N. The same number is the same file as long as the tests' networks are the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.fuzz.cases import Corpus, case, corpus
from tests.fuzz.corpus import (
    Seed,
    controlled,
    example,
    networks,
    onnx_networks,
    onnx_operators,
    operators,
)
from tests.fuzz.pool import CHUNK, Outcome, Tally, run
from tests.fuzz.sandbox import SECONDS, Sandbox

FEW = (
    ("conv_2d", "int8"), ("fully_connected", "int16"), ("softmax", "float32"),
    ("concatenation", "int8"), ("resize_bilinear", "int8"), ("strided_slice", "int8"),
)


def _serve(sound: Corpus, numbers: range, tell: Callable[[Outcome], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="crtexport-fuzz-") as folder:
        sandbox = Sandbox(Path(folder) / "root")
        for number in numbers:
            tell(sandbox.attempt(case(sound, number)))


def _report(sound: Corpus, keep: Path | None, number: int, outcome: Outcome) -> None:
    tried = case(sound, number)
    sys.stdout.write(f"file {number} ({tried.name}): {outcome.finding}\n{outcome.detail}\n")
    sys.stdout.flush()
    if keep is None:
        return
    folder = keep / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tried.files.items():
        (folder / name).write_bytes(content)
    (folder / "command").write_text(" ".join(tried.arguments) + "\n", encoding="utf-8")


def _models(few: bool) -> list[Seed]:
    if few:
        return [example(), *operators(FEW), *controlled(("branch",)), *onnx_networks()]
    return [*networks(), *operators(), *controlled(), *onnx_networks(), *onnx_operators()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.files")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--count", type=int, help="end after so many files")
    parser.add_argument("--few", action="store_true", help="start from few networks")
    parser.add_argument("--keep", type=Path, help="folder for the files behind findings")
    arguments = parser.parse_args()
    sound = corpus(_models(arguments.few))
    tally = Tally()
    until = time.monotonic() + 60 * arguments.minutes
    next_ = arguments.first
    last = sys.maxsize if arguments.count is None else next_ + arguments.count
    while time.monotonic() < until and next_ < last:
        next_ = run(
            partial(_serve, sound), range(next_, min(next_ + CHUNK, last)), tally,
            partial(_report, sound, arguments.keep), seconds=SECONDS + 5, until=until,
        )
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
