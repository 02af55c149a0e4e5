"""Damaged model files give a network or a clean error, in bounded memory and time.

``python -m tests.fuzz.importers --minutes 10`` tries as many as it can, in processes of its own,
and exits with 1 if it found something; ``--keep FOLDER`` keeps the files behind each finding, and
``--first N`` goes on with mutant N. The same number is the same mutant as long as the tests'
networks are the same.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from crtexport.firmware.board import load_board
from tests.fuzz.attempt import SECONDS, Outcome, attempt
from tests.fuzz.corpus import Seed, controlled, networks, operators
from tests.fuzz.mutate import mutant

CHUNK = 200
"""Mutants per process: what one leaves behind must not hide what the next takes."""

BOARDS = ("host", "mps2_an386", "mps3_an547")
"""Plain kernels, those of scalar machines, and those with vectors."""

ADDRESS_SPACE = 3 << 30


@dataclass
class Tally:
    """What came of all mutants so far."""

    tried: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def add(self, outcome: Outcome) -> bool:
        """Counts one; whether it is a finding of a new kind."""
        self.tried += 1
        self.reached[outcome.reached] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        if not outcome.finding:
            return False
        self.findings[outcome.finding] += 1
        return self.findings[outcome.finding] == 1

    def __str__(self) -> str:
        reached = ", ".join(f"{n} {what}" for what, n in sorted(self.reached.items()))
        found = "".join(f"\n  {n} x {what}" for what, n in self.findings.most_common())
        return f"{self.tried} files: {reached}; slowest {self.slowest:.1f} s; " + (
            f"{len(self.findings)} kinds of findings:{found}" if found else "no finding"
        )


def _serve(seeds: Sequence[Seed], numbers: range, pipe: Connection) -> None:
    logging.disable()  # importers warn of what they leave out
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    boards = [load_board(name) for name in BOARDS]
    with tempfile.TemporaryDirectory(prefix="crtexport-fuzz-") as folder:
        for number in numbers:
            pipe.send(attempt(mutant(seeds, number), Path(folder), boards))


def _run(
    seeds: Sequence[Seed], numbers: range, tally: Tally, keep: Path | None, until: float
) -> int:
    """Tries ``numbers`` in a process; the first that was not tried."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(seeds, numbers, theirs), daemon=True
    )
    process.start()
    theirs.close()
    for number in numbers:
        try:
            if not ours.poll(2 * SECONDS):
                outcome = Outcome("stuck", "stuck", "no answer")
            else:
                outcome = ours.recv()
        except EOFError:
            process.join()
            outcome = Outcome("died", f"died with {process.exitcode}")
        if tally.add(outcome):
            _report(seeds, number, outcome, keep)
        if outcome.reached in ("stuck", "died") or time.monotonic() > until:
            process.kill()
            process.join()
            return number + 1
    process.join()
    return numbers.stop


def _report(seeds: Sequence[Seed], number: int, outcome: Outcome, keep: Path | None) -> None:
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
    arguments = parser.parse_args()
    seeds = [*networks(), *operators(), *controlled()]
    tally = Tally()
    until = time.monotonic() + 60 * arguments.minutes
    next_ = arguments.first
    while time.monotonic() < until:
        next_ = _run(seeds, range(next_, next_ + CHUNK), tally, arguments.keep, until)
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
