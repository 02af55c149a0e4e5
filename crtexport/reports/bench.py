"""The cost of a network on a board: instructions by layer, flash, RAM and stack, all measured.

Instructions are those that QEMU executed in the second inference on one input. A plugin notes the
instructions executed before each call of a kernel, so that a layer's are those from its kernel's
entry to the next one's. Cycles are modelled: each instruction that was executed takes what the
processor's manual says (:mod:`crtexport.firmware.thumb.timing`), each line that isn't in a cache of
the flash its wait states. Where branches and loops decide, a layer has the instructions of all its
runs. Where QEMU can't be watched, only the board's own counter is left, and layers have no figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from crtexport.artifact.model import ConstantArg, FunctionCall
from crtexport.firmware.sections import TEST_INPUTS
from crtexport.firmware.spent import Cycles, Misses
from crtexport.ir.macs import macs
from crtexport.pipeline import driver
from crtexport.pipeline.driver import Emit, Optimize
from crtexport.pipeline.summary.sites import CallSite
from crtexport.reports.measure import MeasuredCall, MeasuredExport, MeasureSetting, measure
from crtexport.reports.peers import PeerFigure, figures_for
from crtexport.support.short import line, sizes, table
from crtexport.support.target import Flash


class LayerCost(Struct, frozen=True):
    """The cost of one call of a kernel.

    ``code`` and ``constants`` are bytes of flash, counted at the first layer that uses them: 0 for
    a layer that shares all of its own with earlier ones. ``runs`` says how often the call was made
    in one inference; ``instructions``, ``macs``, ``cycles`` and ``misses`` are sums over these
    runs. Where runs weren't counted, they are None, and ``macs`` are those of a single run."""

    name: str
    operator: str
    output: str
    macs: int
    instructions: int | None
    code: int
    constants: int
    runs: int | None = 1
    cycles: Cycles | None = None
    misses: Misses | None = None

    @property
    def per_mac(self) -> float | None:
        """Returns instructions per multiply-accumulate, None for layers without any."""
        if self.instructions is None or not self.macs:
            return None
        return self.instructions / self.macs


class Bench(Struct, frozen=True):
    """One network on one board.

    ``first`` and ``second`` are the instructions of the first and the second inference, ``further``
    those of each further result of a moving window (``--stream``), if the model has one. ``exact``:
    instructions were counted one by one, not estimated by a timer. ``flash`` and ``ram`` are bytes
    of the whole program by section; ``flash`` has the test input under TEST_INPUTS. ``workspace``,
    ``state`` and ``stack`` are bytes. ``peers`` are published measurements of other tools for this
    file on this board. ``accelerators`` are the names of those that could take layers. ``cycles``
    and ``misses`` are of the second inference, and None without a timing model of the processor or
    of its flash; ``reading`` is the latter's timing.
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
    accelerators: tuple[str, ...] = ()
    cycles: Cycles | None = None
    misses: Misses | None = None
    reading: Flash | None = None
    further: int | None = None

    def __repr__(self) -> str:
        return line(
            "Bench", self.model, f"on {self.board}:",
            *([] if self.second is None else [f"{self.second:,} instructions,"]),
            sizes({"flash": self.flash_size, "workspace": self.workspace}),
        )

    def _repr_html_(self) -> str:
        layers = [(x.name, x.output, x.macs, x.instructions, x.code, x.constants)
                  for x in self.layers]
        others = [(p.peer, p.instructions, p.flash, p.ram) for p in self.peers]
        ours = ("crtexport", self.second, self.flash_size, sum(self.ram.values()))
        return table(
            f"{self.model} on {self.board}", layers,
            ("layer", "output", "MACs", "instructions", "code", "constants"),
        ) + table("Beside others", [ours, *others], ("", "instructions", "flash", "RAM"))

    @property
    def flash_cycles(self) -> tuple[int, int] | None:
        """Returns the likeliest cycles with the wait states of the board's flash: if consecutive
        lines of code are prefetched in time, and if nothing is prefetched. None if unknown."""
        if self.cycles is None or self.misses is None or self.reading is None:
            return None
        misses = self.misses.code + self.misses.data
        waits = self.reading.wait_states
        return (
            self.cycles.mid + waits * (misses - self.misses.following),
            self.cycles.mid + waits * misses,
        )

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    @property
    def flash_size(self) -> int:
        """Returns the bytes of flash that a product would need: all but the test input."""
        return sum(size for name, size in self.flash.items() if name != TEST_INPUTS)

    @property
    def startup(self) -> int | None:
        """Returns the instructions of the first inference beyond those of the second."""
        return None if self.first is None or self.second is None else self.first - self.second


def bench(setting: MeasureSetting) -> Bench:
    """Exports a model for a board, runs its firmware on the first of the samples, and returns the
    measurements.

    Raises what exporting and running raise.
    """
    board = driver.resolve_board(setting.board)
    measured = measure(replace(setting, board=board))
    exported, result = measured.exported, measured.result
    graph = exported.graph
    return Bench(
        model=graph.source, sha256=graph.sha256, board=board.name, emit=exported.emit,
        optimize=setting.options.optimize or board.optimize, first=result.instructions_first,
        second=result.instructions_second, exact=result.exact, layers=_layers(measured),
        flash=result.flash, ram=result.ram, workspace=exported.artifact.workspace_total,
        state=exported.artifact.state_size, stack=result.stack,
        peers=figures_for(graph.sha256, board.name),
        accelerators=(
            board.accelerators if setting.options.accelerators is None
            else tuple(setting.options.accelerators)
        ),
        cycles=result.spent.cycles if result.spent else None,
        misses=result.spent.misses if result.spent else None, reading=board.flash_timing,
        further=result.instructions_further,
    )


def _layers(measured: MeasuredExport) -> tuple[LayerCost, ...]:
    steps, sizes = measured.steps(), measured.sizes
    code = _first_uses([(step.place.call.symbol,) for step in steps], sizes)
    constants = _first_uses([_constants(step.place.call) for step in steps], sizes)
    return tuple(map(_layer, steps, code, constants))


def _layer(step: MeasuredCall, code: int, constants: int) -> LayerCost:
    place, done = step.place, step.executed
    each = 0 if place.copies else macs(place.graph, place.node)
    return LayerCost(
        name=place.name, operator=place.node.operator,
        output="" if place.copies else _output(place),
        macs=each * (1 if done is None else done.runs),
        instructions=None if done is None else done.instructions, code=code, constants=constants,
        runs=None if done is None else done.runs,
        cycles=None if done is None else done.spent.cycles,
        misses=None if done is None else done.spent.misses,
    )


def _constants(call: FunctionCall) -> tuple[str, ...]:
    return tuple(arg.symbol for arg in call.args if isinstance(arg, ConstantArg))


def _first_uses(uses: Iterable[Iterable[str]], sizes: Mapping[str, int]) -> list[int]:
    """Returns the bytes of each set of symbols in ``uses`` that no earlier set contains."""
    seen: set[str] = set()
    totals = []
    for names in uses:
        fresh = set(names) - seen
        seen |= fresh
        totals.append(sum(sizes.get(name, 0) for name in fresh))
    return totals


def _output(place: CallSite) -> str:
    shapes = [place.graph.type(tensor).shape for tensor in place.node.outputs[:1]]
    return "x".join(str(n) for shape in shapes for n in shape)
