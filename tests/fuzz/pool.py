"""Attempts in processes of their own, one after the other, and what came of them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

CHUNK = 200
"""Attempts per process: what one leaves behind must not hide what the next takes."""


@dataclass(frozen=True)
class Outcome:
    """``reached``: how far it came, in a word; ``finding``: what mustn't be, by kind and place,
    with the ``detail`` to look at. ``seconds`` and ``nbytes`` of memory that it took."""

    reached: str
    finding: str = ""
    detail: str = ""
    seconds: float = 0.0
    nbytes: int = 0


@dataclass
class Tally:
    """Counts of the outcomes of all attempts so far."""

    tried: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: int = 0

    def add(self, outcome: Outcome) -> bool:
        """Counts one; whether it is a finding of a new kind."""
        self.tried += 1
        self.reached[outcome.reached] += 1
        self.slowest = max(self.slowest, outcome.seconds)
        self.largest = max(self.largest, outcome.nbytes)
        if not outcome.finding:
            return False
        self.findings[outcome.finding] += 1
        return self.findings[outcome.finding] == 1

    def __str__(self) -> str:
        reached = ", ".join(f"{n} {what}" for what, n in sorted(self.reached.items()))
        found = "".join(f"\n  {n} x {what}" for what, n in self.findings.most_common())
        memory = f"; at most {self.largest >> 20} MiB" if self.largest else ""
        return f"{self.tried} files: {reached}; slowest {self.slowest:.1f} s{memory}; " + (
            f"{len(self.findings)} kinds of findings:{found}" if found else "no finding"
        )


Serve = Callable[[range, Callable[[Outcome], None]], None]
"""Makes the attempts of these numbers in a process of its own, and tells the outcome of each."""
Report = Callable[[int, Outcome], None]
"""Is told the first finding of each kind."""


def run(
    serve: Serve, numbers: range, tally: Tally, report: Report, *, seconds: float,
    until: float = float("inf"),
) -> int:
    """Makes attempts in one process, ended after ``seconds`` without an outcome or when the clock
    stands at ``until``; the first number that was not tried."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(serve, numbers, theirs), daemon=True
    )
    process.start()
    theirs.close()
    for number in numbers:
        try:
            if not ours.poll(seconds):
                outcome = Outcome("stuck", "stuck", f"no answer in {seconds} s", seconds)
            else:
                outcome = ours.recv()
        except EOFError:
            process.join()
            outcome = Outcome("died", f"died with {process.exitcode}")
        if tally.add(outcome):
            report(number, outcome)
        if outcome.reached in ("stuck", "died") or time.monotonic() > until:
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
            return number + 1
    process.join()
    return numbers.stop


def _serve(serve: Serve, numbers: range, pipe: Connection) -> None:
    os.setsid()  # so that what an attempt has started can be ended with it
    serve(numbers, pipe.send)

