"""Drawn networks of all operators are exported without an internal error and compute one thing.

``python -m tests.fuzz.graphs --minutes 10`` draws as many as it can and checks each on three boards
(see :mod:`tests.fuzz.checking`), in processes of their own; it exits with 1 if it found
something. ``--seed N`` begins with network N: the same number is the same network. ``--keep
FOLDER`` keeps a smaller network of the same kind for each new finding: model.json and inputs.
"""

from __future__ import annotations

import argparse
import logging
import math
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from crtexport.ir.graph import Graph
from tests.fuzz.checking import Checker, Example, Options, Outcome
from tests.fuzz.drawn import PRODUCERS, drawn
from tests.fuzz.reduction import kept, reduced

_DETAIL, _TYPE = re.compile(r"\.? \([^()]*\)$"), re.compile(r"u?(int|float)\d+\[[\dx]*\]")
_LOG = logging.getLogger(__name__)

BATCH = 25
"""Networks that are compiled together."""
CHUNK = 50
"""Networks per process: code that crashes must not end the search, and no code is ever unloaded."""


@dataclass
class Tally:
    """Counts of the outcomes of all networks so far."""

    tried: int = 0
    nodes: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    undefined: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    references: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> bool:
        """Counts one; whether it is a finding of a new kind."""
        self.tried += 1
        graph = outcome.example.grown.graph
        operators = Counter(operators_of(graph))
        self.nodes += operators.total()
        self.operators += operators
        if outcome.refused:
            self.refusals[rule(outcome.refused)] += 1
        if outcome.undefined:
            self.undefined[outcome.undefined] += 1
        self.references[outcome.reference.partition(":")[0]] += 1
        if not outcome.finding:
            return False
        self.findings[outcome.finding] += 1
        return self.findings[outcome.finding] == 1

    def __str__(self) -> str:
        missing = {kind.__name__ for kind in PRODUCERS} - set(self.operators)
        lines = [
            f"{self.tried} networks, {self.nodes} nodes of {len(self.operators)} operators"
            + (f" (not yet: {', '.join(sorted(missing))})" if missing else ""),
            "reference: " + ", ".join(f"{n} {k}" for k, n in self.references.most_common() if k),
            f"undefined: {dict(self.undefined)}",
            f"refused by a rule: {self.refusals.total()}",
            *(f"  {n} x {what}" for what, n in self.refusals.most_common()),
            f"findings: {self.findings.total()} of {len(self.findings)} kinds",
            *(f"  {n} x {what}" for what, n in self.findings.most_common()),
        ]
        return "\n".join(lines)


def operators_of(graph: Graph) -> Iterator[str]:
    """The names of the operators of a graph and of those in it."""
    for inner in graph.nested():
        for node in inner.nodes:
            yield type(node.op).__name__


def rule(problem: str) -> str:
    """A refusal without what it is about: the sentence that the documentation has."""
    first, *nodes = problem.splitlines()
    sentences = {_DETAIL.sub("", line.partition("): ")[2]) for line in nodes}
    return " | ".join(sorted(sentences)) or _TYPE.sub("a tensor", first)


def example(seed: int) -> Example:
    """Network ``seed``: every second one is sure to have the operator whose turn it is."""
    kinds = tuple(PRODUCERS)
    wanted = kinds[seed // 2 % len(kinds)] if seed % 2 else None
    return Example(seed, drawn(seed, wanted), Options.drawn(seed))


def _serve(seeds: Sequence[int], pipe: Connection) -> None:
    with Checker() as checker:
        for start in range(0, len(seeds), BATCH):
            examples = [example(seed) for seed in seeds[start : start + BATCH]]
            pipe.send("begun")
            pipe.send(checker.check(examples))


def _checked(seeds: Sequence[int]) -> Iterator[Outcome]:
    """Returns the outcome of each; where a process dies, its batch is tried one by one."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(seeds, sending))
    process.start()
    sending.close()
    done = 0
    try:
        while True:
            found = receiving.recv()
            if found != "begun":
                done += len(found)
                yield from found
    except EOFError:
        process.join()
    finally:
        if process.is_alive():
            process.kill()
            process.join()
    if done == len(seeds):
        return
    if len(seeds) == 1:
        broken = Outcome(example(seeds[0]))
        broken.finding = f"the process died with {process.exitcode}"
        yield broken
        return
    for seed in seeds[done : done + BATCH]:
        yield from _checked([seed])
    if seeds[done + BATCH :]:
        yield from _checked(seeds[done + BATCH :])


def search(seconds: float, first: int, count: int | None, keep: Path | None) -> Tally:
    """Checks networks until the time is over or there were ``count``; says what it finds."""
    tally, end, number = Tally(), time.monotonic() + seconds, first
    last = time.monotonic()
    while time.monotonic() < end and (count is None or tally.tried < count):
        size = CHUNK if count is None else min(CHUNK, count - tally.tried)
        for outcome in _checked(range(number, number + size)):
            if tally.add(outcome):
                _LOG.info(
                    "network %s: %s\n%s\n", outcome.example.seed, outcome.finding, outcome.detail
                )
                if keep is not None and not outcome.finding.startswith("the process died"):
                    _LOG.info("kept in %s\n", kept(reduced(outcome), keep))
            elif outcome.finding:  # of a kind that was shown; what is behind it may be another
                _LOG.info("network %s: %s, too\n", outcome.example.seed, outcome.finding)
        number += size
        if time.monotonic() - last > 120:
            last = time.monotonic()
            _LOG.info("-- up to network %s\n%s\n", number, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, help="no longer than this; 1 without --count")
    parser.add_argument("--seed", type=int, default=0, help="the first network")
    parser.add_argument("--count", type=int, help="no more networks than this")
    parser.add_argument("--keep", type=Path, help="a folder for smaller networks of findings")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    minutes = given.minutes
    if minutes is None:
        minutes = 1 if given.count is None else math.inf
    tally = search(60 * minutes, given.seed, given.count, given.keep)
    _LOG.info("%s", tally)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
