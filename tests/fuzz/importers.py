"""Damaged model files give a network or a clean error, in bounded memory and time.

``python -m tests.fuzz.importers --minutes 10`` tries as many as it can, in processes of its own,
and exits with 1 if it found something; ``--keep FOLDER`` keeps the files behind each finding, and
``--first N`` goes on with mutant N. The same number is the same mutant as long as the tests'
networks are the same.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from crtexport.firmware.board import load_board
from tests.fuzz.attempt import SECONDS, attempt
from tests.fuzz.corpus import (
    Seed,
    controlled,
    networks,
    onnx_networks,
    onnx_operators,
    operators,
)
from tests.fuzz.mutate import mutant
from tests.fuzz.pool import CHUNK, Outcome, Tally, run

BOARDS = ("host", "mps2_an386", "mps3_an547")
"""Plain kernels, those of scalar machines, and those with vectors."""

ADDRESS_SPACE = 3 << 30


def _serve(
    seeds: Sequence[Seed], numbers: range, tell: Callable[[Outcome], None]
) -> None:
    logging.disable()  # importers warn of what they leave out
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    boards = [load_board(name) for name in BOARDS]
    with tempfile.TemporaryDirectory(prefix="crtexport-fuzz-") as folder:
        for number in numbers:
            tell(attempt(mutant(seeds, number), Path(folder), boards))


def _report(seeds: Sequence[Seed], keep: Path | None, number: int, outcome: Outcome) -> None:
    seed = mutant(seeds, number)
    sys.stdout.write(f"mutant {number} of {seed.name}: {outcome.finding}\n{outcome.detail}\n")
    sys.stdout.flush()
    if keep is None:
        return
    folder = keep / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model").write_bytes(seed.content)
    for name, content in seed.beside.items():
        (folder / name).write_bytes(content)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.importers")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--keep", type=Path, help="folder for the files behind findings")
    parser.add_argument("--only", help="files whose names end so: .onnx, .json")
    arguments = parser.parse_args()
    seeds = [
        *networks(), *operators(), *controlled(), *onnx_networks(), *onnx_operators(),
    ]
    if arguments.only:
        seeds = [seed for seed in seeds if seed.name.endswith(arguments.only)]
    tally = Tally()
    until = time.monotonic() + 60 * arguments.minutes
    next_ = arguments.first
    while time.monotonic() < until:
        next_ = run(
            partial(_serve, seeds), range(next_, next_ + CHUNK), tally,
            partial(_report, seeds, arguments.keep), seconds=2 * SECONDS, until=until,
        )
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
