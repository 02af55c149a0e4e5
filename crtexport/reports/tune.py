"""Measures the variants of kernels on a board and stores their costs.

All layers are measured at once: in each round every layer has a variant that wasn't measured yet,
and the firmware is exported, built and run in QEMU, which counts the instructions of each kernel.
So there are as many rounds as the layer with the most variants has. Costs are stored after each
round, so that nothing is lost when tuning is interrupted, and tuning again measures only new
variants. Every round must give the same outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from crtexport.firmware.board_schema import Board, QemuRunner
from crtexport.ir.graph import Graph
from crtexport.lowering.registry import Context
from crtexport.mlf.arrays import Array
from crtexport.pipeline import driver
from crtexport.pipeline.codegen import Generator
from crtexport.reports import measure
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select import tuning_records
from crtexport.schedules.select.choose import Choose, by_default, digest
from crtexport.schedules.select.cost_model import Cost
from crtexport.schedules.select.tuning_records import ByRecord, Configuration, Records
from crtexport.support.errors import CrtExportError, RunFailedError
from crtexport.support.short import count, line

Progress = Callable[[str], None]
_ALL = 1 << 30


class TunedLayer(Struct, frozen=True):
    """A layer whose kernel has several variants: the default one and the one that measurements
    select, with their costs."""

    name: str
    usual: str
    chosen: str
    before: Cost
    after: Cost


class Tuned(Struct, frozen=True):
    """The result of tuning: the costs of an inference with the default variants and with those that
    measurements select. ``measured`` kernels were new, in ``rounds`` runs."""

    path: Path
    configuration: Configuration
    layers: tuple[TunedLayer, ...]
    measured: int
    rounds: int
    before: Cost
    after: Cost

    def __repr__(self) -> str:
        return line(
            "Tuned", f"{self.path}:", f"{count(len(self.layers), 'layer')},",
            f"{self.before.time:,} to {self.after.time:,}",
            "instructions" if self.before.cycles is None else "cycles",
        )


def tune(
    setting: measure.MeasureSetting, cache: Path | str, *, progress: Progress | None = None,
    counted: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Measures the variants of a model's kernels on a board, but for those that are in ``cache``,
    which may be a new file, already; and adds them to it. ``counted`` is told how many of all are
    measured.

    Raises CrtExportError where QEMU can't count the board's instructions or ``cache`` is another
    kind of file, and what exporting and running raise.
    """
    board = driver.resolve_board(setting.board)
    if not isinstance(board.runner, QemuRunner):
        raise CrtExportError(
            "tuning counts instructions in QEMU, which doesn't run this board's programs",
            location=(board.name, "runner"),
            hint=(
                "tune for a board with the same processor that has a QEMU machine: its "
                "measurements apply to this one"
            ),
        )
    path = Path(cache)
    known = tuning_records.read(path) if path.exists() else Records(path)
    model = setting.model
    graph = model if isinstance(model, Graph) else driver.load(model)
    return _Tuning(
        replace(
            setting, model=graph, board=board, options=replace(setting.options, tuning=None)
        ), board, known,
        progress or (lambda _: None), counted or (lambda _, __: None),
    ).result()


class _Trial(Struct):
    """Picks a variant that is ``wanted`` for up to ``most`` kernels, the ``usual`` one for others.
    ``fresh`` are the digests of those that were wanted, ``seen`` of all that there are."""

    usual: Choose
    wanted: Callable[[str], bool]
    most: int = _ALL
    fresh: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def __call__(
        self, context: Context, variants: Sequence[Candidate], part: float
    ) -> Candidate:
        first = self.usual(context, variants, part)
        ordered = [first, *(variant for variant in variants if variant.name != first.name)]
        named = [(variant, digest(variant.make().kernel)) for variant in ordered]
        self.seen.update(known_as for _, known_as in named)
        variant, known_as = next((pair for pair in named if self.wanted(pair[1])), named[0])
        if self.wanted(known_as):
            if known_as in self.fresh or len(self.fresh) < self.most:
                self.fresh.add(known_as)
            else:
                variant, _ = named[0]
        return variant


class _Tuning:
    def __init__(
        self, setting: measure.MeasureSetting, board: Board, records: Records, say: Progress,
        counted: Callable[[int, int], None],
    ) -> None:
        self.setting, self.board, self.known = setting, board, records
        self.say, self.counted = say, counted
        self.configuration = Generator(board, setting.options).configuration()
        self.usual = by_default(
            board.target, self.configuration.optimize, self.configuration.emit
        )
        self.skipped: set[str] = set()
        self.outputs: list[Array] | None = None

    def result(self) -> Tuned:
        """Measures until no variant is left; then compares the default variants with the selected
        ones."""
        at_first, rounds = len(self._measured), 0
        for trial in self._trials():
            rounds += 1
            self.say(f"round {rounds}: {len(trial.fresh)} kernels, {len(self._measured)} known")
            self.counted(sum(one in self._measured for one in trial.seen), len(trial.seen))
        self.say("measure the default variants")
        before = self._run(self.usual)
        self.say("measure the selected variants")
        after = self._run(ByRecord(self._measured, self.configuration.optimize, self.usual))
        return Tuned(
            self.known.path, self.configuration, tuple(self._layers(before, after)),
            len(self._measured) - at_first, rounds, _total(before), _total(after),
        )

    @property
    def _measured(self) -> Mapping[str, tuning_records.Measured]:
        return self.known.of(self.configuration)

    def _trials(self) -> Iterator[_Trial]:
        """Runs variants that weren't measured yet, and stores their costs."""
        most = _ALL
        while True:
            trial = _Trial(
                self.usual, lambda one: one not in self._measured and one not in self.skipped, most
            )
            try:
                ran = self._run(trial)
            except RunFailedError:
                raise
            except CrtExportError:
                # One of the variants takes too much memory, perhaps.
                if not trial.fresh or not self._measured:
                    raise
                if len(trial.fresh) == 1:
                    self.skipped |= trial.fresh
                most = max(len(trial.fresh) // 2, 1)
                continue
            if not trial.fresh:
                return
            most = _ALL
            self._keep(trial, ran)
            yield trial

    def _run(self, choose: Choose) -> measure.MeasuredExport:
        """Exports and runs. Raises RunFailedError for other outputs than before."""
        ran = measure.measure(self.setting, choose)
        if ran.result.calls is None or ran.result.instructions_second is None:
            raise CrtExportError(
                "the instructions of kernels can't be counted", location=self.board.name,
                hint="tuning needs a QEMU with plugins, and a C compiler for the one that counts",
            )
        outputs = list(ran.result.outputs[0])
        if self.outputs is not None and not all(
            a.tobytes() == b.tobytes() for a, b in zip(outputs, self.outputs, strict=True)
        ):
            raise RunFailedError("two variants of the network's kernels give different outputs")
        self.outputs = outputs
        return ran

    def _keep(self, trial: _Trial, ran: measure.MeasuredExport) -> None:
        sizes, found = ran.sizes, {}
        for step in ran.steps():
            node, done = step.place.lowered, step.executed
            if done is not None and done.runs and _has_forms(step):
                cycles = done.spent.cycles
                found[digest(node.lowered.kernel)] = tuning_records.Measured(
                    instructions=done.instructions // done.runs,
                    cycles=None if cycles is None else cycles.mid // done.runs,
                    code=sizes.get(step.place.call.symbol, 0), form=node.chosen,
                    layer=str(node.node),
                )
        # Some are in branches that weren't taken.
        self.skipped |= trial.fresh - found.keys()
        self.known = self.known.added(self.configuration, found)
        self.known.write()

    def _layers(
        self, before: measure.MeasuredExport, after: measure.MeasuredExport
    ) -> Iterator[TunedLayer]:
        # Other variants may let layers be fused: those that aren't in both can't be compared.
        others = {step.place.name: step for step in after.steps()}
        for first in before.steps():
            second = others.get(first.place.name)
            if second is not None and _has_forms(first):
                yield TunedLayer(
                    first.place.name, first.place.lowered.chosen, second.place.lowered.chosen,
                    _cost(before, first), _cost(after, second),
                )


def _has_forms(step: measure.MeasuredCall) -> bool:
    """Returns whether a kernel was chosen from several for a step."""
    return len(step.place.lowered.candidates) > 1 and not step.place.copies


def _cost(ran: measure.MeasuredExport, step: measure.MeasuredCall) -> Cost:
    code = ran.sizes.get(step.place.call.symbol, 0)
    if step.executed is None:
        return Cost(0, code)
    cycles = step.executed.spent.cycles
    return Cost(
        step.executed.instructions, code, cycles=None if cycles is None else cycles.mid
    )


def _total(ran: measure.MeasuredExport) -> Cost:
    code, spent = ran.result.flash.get(".model_text", 0), ran.result.spent
    cycles = None if spent is None else spent.cycles
    return Cost(
        ran.result.instructions_second or 0, code, cycles=None if cycles is None else cycles.mid
    )
