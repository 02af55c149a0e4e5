"""Tries the forms of kernels on a board and keeps what each costs.

All layers are measured at once: in each round every layer has a form that wasn't measured yet, and
the firmware is exported, built and run in QEMU, which counts the instructions of each kernel. So
there are as many rounds as the layer with the most forms has. What was measured is kept after each
round, so that nothing is lost when tuning is interrupted, and tuning again measures only what is
new. Every round must give the same outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from crtexport import pipeline
from crtexport.errors import CrtExportError, RunFailedError
from crtexport.firmware.board_schema import Board, QemuRunner
from crtexport.generation import Generator
from crtexport.ir.graph import Graph
from crtexport.kernels.registry import Context
from crtexport.mlf.arrays import Array
from crtexport.report import measure
from crtexport.schedules import records
from crtexport.schedules.candidates import Candidate
from crtexport.schedules.choice import Choose, by_default, digest
from crtexport.schedules.cost import Cost
from crtexport.schedules.records import ByRecord, Configuration, Records

Progress = Callable[[str], None]
_ALL = 1 << 30


class TunedLayer(Struct, frozen=True):
    """A layer whose kernel has several forms: the usual one and the one that measurements choose,
    with their costs."""

    name: str
    usual: str
    chosen: str
    before: Cost
    after: Cost


class Tuned(Struct, frozen=True):
    """What tuning found: the costs of an inference with the usual forms and with those that
    measurements choose. ``measured`` kernels were new, in ``rounds`` runs."""

    path: Path
    configuration: Configuration
    layers: tuple[TunedLayer, ...]
    measured: int
    rounds: int
    before: Cost
    after: Cost


def tune(
    setting: measure.Setting, cache: Path | str, *, progress: Progress | None = None
) -> Tuned:
    """Measures the forms of a model's kernels on a board, but for those that ``cache``, which may
    be a new file, has already; and adds them to it.

    Raises CrtExportError where QEMU can't count the board's instructions or ``cache`` is something
    else, and what exporting and running raise.
    """
    board = pipeline.resolve_board(setting.board)
    if not isinstance(board.runner, QemuRunner):
        raise CrtExportError(
            "tuning counts instructions in QEMU, which doesn't run this board's programs",
            location=(board.name, "runner"),
            hint="tune for a board with the same processor that has a QEMU machine: what is"
            " measured there is good for this one",
        )
    path = Path(cache)
    known = records.read(path) if path.exists() else Records(path)
    model = setting.model
    graph = model if isinstance(model, Graph) else pipeline.load(model)
    return _Tuning(
        replace(setting, model=graph, board=board, tuning=None), board, known,
        progress or (lambda _: None),
    ).result()


class _Trial(Struct):
    """Picks a form that is ``wanted`` for up to ``most`` kernels, the ``usual`` one for others.

    ``picked``: by the id of a node, the form's name and its kernel's digest; ``fresh`` are those
    that were wanted.
    """

    usual: Choose
    wanted: Callable[[str], bool]
    most: int = _ALL
    picked: dict[int, tuple[str, str]] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)

    def __call__(
        self, context: Context, found: Sequence[Candidate], part: float
    ) -> Candidate:
        first = self.usual(context, found, part)
        ordered = [first, *(form for form in found if form.name != first.name)]
        named = [(form, digest(form.make().kernel)) for form in ordered]
        form, known_as = next((pair for pair in named if self.wanted(pair[1])), named[0])
        if self.wanted(known_as):
            if known_as in self.fresh or len(self.fresh) < self.most:
                self.fresh.add(known_as)
            else:
                form, known_as = named[0]
        self.picked[id(context.node)] = form.name, known_as
        return form


class _Tuning:
    def __init__(
        self, setting: measure.Setting, board: Board, known: Records, say: Progress
    ) -> None:
        self.setting, self.board, self.known, self.say = setting, board, known, say
        self.configuration = Generator(
            board, setting.emit, setting.optimize, llvm_options=setting.llvm_options
        ).configuration()
        self.usual = by_default(
            board.target, self.configuration.optimize, self.configuration.emit
        )
        self.skipped: set[str] = set()
        self.outputs: list[Array] | None = None

    def result(self) -> Tuned:
        """Measures until nothing is left; then compares the usual forms with the chosen ones."""
        at_first, rounds = len(self._measured), 0
        for trial in self._trials():
            rounds += 1
            self.say(f"round {rounds}: {len(trial.fresh)} kernels, {len(self._measured)} known")
        usual = _Trial(self.usual, lambda _: False)
        self.say("measure the usual forms")
        before = self._run(usual)
        chosen = ByRecord(self._measured, self.configuration.optimize, self.usual)
        tuned = _Trial(chosen, lambda _: False)
        self.say("measure the chosen forms")
        after = self._run(tuned)
        return Tuned(
            self.known.path, self.configuration, tuple(self._layers(before, usual, after, tuned)),
            len(self._measured) - at_first, rounds, _total(before), _total(after),
        )

    @property
    def _measured(self) -> Mapping[str, records.Measured]:
        return self.known.of(self.configuration)

    def _trials(self) -> Iterator[_Trial]:
        """Runs with forms that weren't measured yet, whose costs are kept."""
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
                # One of the forms takes too much memory, perhaps.
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

    def _run(self, choose: Choose) -> measure.Measured:
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
            raise RunFailedError("two forms of the network's kernels give different outputs")
        self.outputs = outputs
        return ran

    def _keep(self, trial: _Trial, ran: measure.Measured) -> None:
        sizes, found = ran.sizes, {}
        for step in ran.steps():
            node, done = step.place.node, step.executed
            form, known_as = trial.picked.get(id(node), ("", ""))
            if done is not None and done.runs and known_as and not step.place.copies:
                found[known_as] = records.Measured(
                    instructions=done.instructions // done.runs,
                    code=sizes.get(step.place.call.symbol, 0), form=form, layer=str(node),
                )
        # Some are in branches that weren't taken.
        self.skipped |= trial.fresh - found.keys()
        self.known = self.known.added(self.configuration, found)
        self.known.write()

    def _layers(
        self, before: measure.Measured, usual: _Trial, after: measure.Measured, tuned: _Trial
    ) -> Iterator[TunedLayer]:
        for first, second in zip(before.steps(), after.steps(), strict=True):
            node = id(first.place.node)
            if node in usual.picked and not first.place.copies:
                yield TunedLayer(
                    first.place.name, usual.picked[node][0],
                    tuned.picked[id(second.place.node)][0], _cost(before, first),
                    _cost(after, second),
                )


def _cost(ran: measure.Measured, step: measure.Step) -> Cost:
    instructions = step.executed.instructions if step.executed is not None else 0
    return Cost(instructions, ran.sizes.get(step.place.call.symbol, 0))


def _total(ran: measure.Measured) -> Cost:
    code = ran.result.flash.get(".model_text", 0)
    return Cost(ran.result.instructions_second or 0, code)
