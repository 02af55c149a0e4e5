"""``python -m tests.bench.costs``: estimates of kernels' costs beside what was measured of them.

Tunes the MLPerf Tiny networks for a board, all into one file, or with ``--drawn`` networks of drawn
shapes, and compares the cost model with every measured variant: errors, and what choosing by it
loses; in cycles where the model knows these. Then it prints the weights that fit the variants best
that aren't rare, for instructions and, where they were modelled, for cycles, to be copied into
:mod:`crtexport.schedules.select.cost_model` where they are better; but those of drawn networks with
seeds below 100 are what fits are checked with.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from crtexport import passes
from crtexport.ir.graph import Graph, Node
from crtexport.lowering.registry import Context
from crtexport.pipeline import driver
from crtexport.pipeline.codegen import Generator
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.tune import tune
from crtexport.schedules.select import tuning_records
from crtexport.schedules.select.choose import digest
from crtexport.schedules.select.cost_model import Counted, Machine, Work, counted, machine_for
from crtexport.schedules.select.tuning_records import Measured
from crtexport.schedules.variants import variants_of
from crtexport.support.errors import CrtExportError
from tests.bench.drawn import KINDS, drawn
from tests.helpers import INT8_NETWORKS, shared_model

Array = npt.NDArray[np.float64]
_USUAL = np.array([1, 2, 1.5, 0.5, 0.2, 2, 3, 2, 2, 6, 2, 1, 0], np.float64)
_TRUST = 2e-4
"""The weight of the usual weights beside that of a measurement."""


@dataclass(frozen=True)
class Point:
    """A variant of a layer: its work and what was measured; ``rare`` as of the candidate."""

    layer: tuple[str, int]
    kind: str
    name: str
    rare: bool
    work: Counted
    measured: Measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.costs")
    parser.add_argument("--board", default="mps2_an386")
    parser.add_argument("--tuning", type=Path, required=True, help="what is measured, new or old")
    parser.add_argument("--known", action="store_true", help="measure nothing more")
    parser.add_argument("--network", action="append", help="by default all int8 ones")
    parser.add_argument(
        "--drawn", type=int, default=0, help="as many networks of each type instead"
    )
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--type", choices=KINDS, action="append", help="by default all")
    options = parser.parse_args()
    console = Console(width=120)
    networks = options.network or list(INT8_NETWORKS)
    if options.drawn:
        seeds = range(options.first, options.first + options.drawn)
        networks = [f"{kind} {seed}" for kind in options.type or KINDS for seed in seeds]
    if not options.known:
        for name in networks:
            tune(
                MeasureSetting(network(name), options.board), options.tuning,
                progress=lambda text, name=name: console.print(name, text),  # type: ignore[misc]
            )
    machine = machine_for(driver.resolve_board(options.board).target)
    points = [p for name in networks for p in measured_variants(name, options, machine)]
    if machine is not None:
        _compare(console, points, machine)
    likely = [p for p in points if not p.rare]
    weights, width = fit(likely, [p.measured.instructions for p in likely])
    console.print(f"weights: {_listed(weights)}; width: {width:.2f}")
    cycles = [p.measured.cycles for p in likely if p.measured.cycles is not None]
    if len(cycles) == len(likely):
        console.print(f"cycles: {_listed(fit(likely, cycles)[0])}")


def _listed(weights: list[float]) -> str:
    return ", ".join(f"{weight:.2f}" for weight in weights)


def network(name: str) -> Graph:
    """A drawn one by its type and seed, or one that is called so."""
    kind, _, seed = name.partition(" ")
    if seed:
        return drawn(next(known for known in KINDS if known == kind), int(seed))
    return driver.load(shared_model(name))


def measured_variants(name: str, options: Any, machine: Machine | None) -> list[Point]:
    """The measured variants of a network's layers."""
    board = driver.resolve_board(options.board)
    known = tuning_records.read(options.tuning).of(Generator(board).configuration())
    graph = passes.simplify(network(name)).graph
    found = []
    for number, node in enumerate(graph.nodes):
        try:
            candidates = variants_of(Context(graph, node), board.target, board.optimize)
        except CrtExportError:
            continue
        # Where compilers of C get variants of their own, they are of another kind of machine.
        ours = [variant for variant in candidates if variant.objects] or candidates
        for variant in ours:
            kernel = variant.make().kernel
            if (record := known.get(digest(kernel))) is not None:
                work = counted(
                    kernel, machine.registers if machine else 8, mla=not machine or machine.mla
                )
                found.append(Point(
                    (name, number), f"{type(node.op).__name__} {_dtype(graph, node)}",
                    variant.name, variant.rare, work, record,
                ))
    return found


def _dtype(graph: Graph, node: Node) -> str:
    return graph.type(node.outputs[0]).dtype.value


def _compare(console: Console, points: list[Point], machine: Machine) -> None:
    table = Table("operator", "variants", "median error", "worst", title="Estimates")
    for kind in sorted({p.kind for p in points}):
        errors = [abs(_error(p, machine)) for p in points if p.kind == kind]
        table.add_row(
            kind, str(len(errors)), f"{statistics.median(errors):.1%}", f"{max(errors):.1%}"
        )
    errors = [abs(_error(p, machine)) for p in points]
    table.add_row("all", str(len(errors)), f"{statistics.median(errors):.1%}", f"{max(errors):.1%}")
    console.print(table)
    losses = []
    for layer in {p.layer for p in points}:
        likely = [p for p in points if p.layer == layer and not p.rare]
        if len(likely) > 1:
            pick = min(likely, key=lambda p: _times(p, machine)[0])
            best = min(_times(p, machine)[1] for p in likely)
            losses.append(_times(pick, machine)[1] / best - 1)
    if losses:
        console.print(
            f"What is estimated to be the fastest of the likely variants takes in the median "
            f"{statistics.median(losses):.1%}, at worst {max(losses):.1%} more than the fastest."
        )


def _error(point: Point, machine: Machine) -> float:
    estimated, measured = _times(point, machine)
    return estimated / measured - 1


def _times(point: Point, machine: Machine) -> tuple[float, int]:
    """The estimated and the measured cycles, or instructions where those aren't known."""
    cycles = machine.time(point.work.run)
    if cycles is not None and point.measured.cycles is not None:
        return cycles, point.measured.cycles
    return machine.instructions(point.work.run), point.measured.instructions


def fit(points: list[Point], measured: list[int]) -> tuple[list[float], float]:
    """Weights of at least 0 with the least squares of relative errors of what was ``measured``;
    bytes per instruction, if it was these."""
    runs = np.array([[p.work.run[kind] for kind in Work] for p in points], np.float64)
    runs /= np.array(measured)[:, None]
    gram = runs.T @ runs + _TRUST * len(points) * np.eye(len(_USUAL))
    target = runs.T @ np.ones(len(points)) + _TRUST * len(points) * _USUAL
    weights = _USUAL.copy()
    for _ in range(2000):
        for i in range(len(weights)):
            rest = target[i] - gram[i] @ weights + gram[i, i] * weights[i]
            weights[i] = max(0.0, rest / gram[i, i])
    machine = Machine(0, dict(zip(Work, weights.tolist(), strict=True)), 1, 0)
    widths = [p.measured.code / max(machine.instructions(p.work.code), 1) for p in points]
    return weights.tolist(), statistics.median(widths)


if __name__ == "__main__":
    main()
