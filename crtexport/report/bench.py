"""What a network costs on a board: instructions by layer, flash, RAM and stack, all measured.

Instructions are those that QEMU executed in the second inference on one input. A plugin notes the
instructions executed before each call of a kernel, so that a layer's are those from its kernel's
entry to the next one's; they are counts, not cycles. Where QEMU can't be watched, only the board's
own counter is left, and layers have no figures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crtexport import pipeline
from crtexport.artifact.model import Call, ConstantArg
from crtexport.errors import CrtExportError
from crtexport.firmware import run as firmware_run
from crtexport.firmware.board_schema import Board
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.run import DEFAULT_TIMEOUT, RunResult, WatchedCall
from crtexport.firmware.sections import TEST_INPUTS
from crtexport.ir.graph import Graph, Node
from crtexport.ir.macs import macs
from crtexport.mlf.arrays import Array, samples_for
from crtexport.mlf.reader import open_package
from crtexport.pipeline import Emit, Exported, Optimize
from crtexport.report.peers import PeerFigure, figures_for


@dataclass(frozen=True)
class LayerCost:
    """A step of the plan. ``code`` and ``constants`` are bytes, counted at the first layer that
    uses them: 0 for a layer that shares all of its own. ``instructions`` is None where not counted.
    """

    name: str
    operator: str
    output: str
    macs: int
    instructions: int | None
    code: int
    constants: int

    @property
    def per_mac(self) -> float | None:
        """Instructions per multiply-accumulate, None for layers without any."""
        if self.instructions is None or not self.macs:
            return None
        return self.instructions / self.macs


@dataclass(frozen=True)
class Bench:
    """One network on one board.

    ``first`` and ``second`` are instructions of the first and second inference; ``exact`` tells
    counts from a timer's estimates. ``flash`` and ``ram`` are bytes of the whole program by
    section, the test input in ``flash`` as TEST_INPUTS. ``workspace``, ``state`` and ``stack`` are
    bytes. ``peers``: what others were measured to take for this very file on this board.
    """

    model: str
    sha256: str
    board: str
    emit: Emit
    optimize: Optimize
    first: int | None
    second: int | None
    exact: bool
    layers: tuple[LayerCost, ...]
    flash: dict[str, int]
    ram: dict[str, int]
    workspace: int
    state: int
    stack: int | None
    peers: tuple[PeerFigure, ...]

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def flash_size(self) -> int:
        """Bytes of flash that a product would need: all but the input that is tested with."""
        return sum(size for name, size in self.flash.items() if name != TEST_INPUTS)

    @property
    def startup(self) -> int | None:
        """Instructions that the first inference takes more than the second."""
        return None if self.first is None or self.second is None else self.first - self.second


def bench(
    model: Path | str, *, board: Board | Path | str, emit: Emit | None = None,
    optimize: Optimize | None = None, inputs: Mapping[str, Array] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Bench:
    """Exports ``model`` for ``board``, runs its firmware and measures it.

    ``inputs`` as for :func:`crtexport.run`; the first sample counts. Raises what exporting and
    running raise.
    """
    chosen = pipeline.resolve_board(board)
    with tempfile.TemporaryDirectory(prefix="crtexport-") as folder:
        exported = pipeline.export(
            model, board=chosen, emit=emit, optimize=optimize, output=Path(folder) / "bench.tar"
        )
        package = open_package(exported.path)
        samples = samples_for(package.inputs, inputs)
        result = firmware_run.run(
            parts_from_package(package), board_from_package(package), samples.rows[:1],
            timeout=timeout, watch=[f.symbol for f in exported.artifact.functions],
        )
    graph = exported.graph
    return Bench(
        model=graph.source, sha256=graph.sha256, board=chosen.name, emit=exported.emit,
        optimize=optimize or chosen.optimize, first=result.instructions_first,
        second=result.instructions_second, exact=result.exact, layers=_layers(exported, result),
        flash=result.flash, ram=result.ram, workspace=exported.artifact.workspace_total,
        state=exported.artifact.state_size, stack=result.stack,
        peers=figures_for(graph.sha256, chosen.name),
    )


def _layers(exported: Exported, result: RunResult) -> tuple[LayerCost, ...]:
    graph, artifact = exported.graph, exported.artifact
    nodes = [graph.nodes[step.node] for step in exported.plan.steps]
    calls = [call for call in artifact.calls if isinstance(call, Call)]
    if len(calls) < len(artifact.calls):
        return ()  # which layers run, and how often, depends on the input
    if len(nodes) != len(calls):
        raise CrtExportError("the layers of this network can't be told apart", location=graph.name)
    instructions = _by_call(calls, result.calls)
    # As linked: a compiler may have taken small tables into the code.
    sizes = {symbol.name: symbol.size for symbol in result.symbols}
    code = _first_uses([(call.symbol,) for call in calls], sizes)
    constants = _first_uses([_constants(call) for call in calls], sizes)
    return tuple(
        LayerCost(
            name=str(node), operator=type(node.op).__name__, output=_output(graph, node),
            macs=macs(graph, node), instructions=count, code=code_size, constants=constant_size,
        )
        for node, count, code_size, constant_size in zip(
            nodes, instructions, code, constants, strict=True
        )
    )


def _by_call(
    calls: Sequence[Call], watched: Sequence[WatchedCall] | None
) -> list[int | None]:
    """The count of each call; None for all where the program did not make exactly these calls."""
    if watched is None or [c.symbol for c in calls] != [w.symbol for w in watched]:
        return [None] * len(calls)
    return [w.instructions for w in watched]


def _constants(call: Call) -> tuple[str, ...]:
    return tuple(arg.symbol for arg in call.args if isinstance(arg, ConstantArg))


def _first_uses(uses: Iterable[Iterable[str]], sizes: Mapping[str, int]) -> list[int]:
    """For each user, the bytes of what nobody before it has used."""
    seen: set[str] = set()
    totals = []
    for names in uses:
        fresh = set(names) - seen
        seen |= fresh
        totals.append(sum(sizes.get(name, 0) for name in fresh))
    return totals


def _output(graph: Graph, node: Node) -> str:
    return "x".join(str(n) for tensor in node.outputs[:1] for n in graph.type(tensor).shape)
