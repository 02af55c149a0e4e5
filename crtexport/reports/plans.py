"""Compares the plans that a network can have on a board: RAM against instructions and code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from crtexport.firmware.board import Board
from crtexport.firmware.budget import excess
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Cascade
from crtexport.pipeline import driver
from crtexport.pipeline.cascades import choice
from crtexport.pipeline.cascades.search import CascadeSearch, Made
from crtexport.pipeline.layouts import LaidOut, Surroundings, bearable, searched, usual
from crtexport.pipeline.options import DEFAULTS, ExportOptions
from crtexport.pipeline.result import Prepared, usage_of
from crtexport.pipeline.summary.layers import layers_of, total_instructions
from crtexport.schedules.select.choose import Costs
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS, Level
from crtexport.support.short import count, line, table


class PlanPoint(Struct, frozen=True):
    """A plan, and the ``options`` of an export that uses it.

    ``workspace`` is in bytes, and so is ``ram``: workspace, inputs, outputs, state and stack.
    ``instructions`` of an inference (None if unknown) and bytes of ``code`` are estimates.
    ``by_rows`` is the number of layers that run row by row. ``fits``: the plan fits the board's
    memories; None on this computer. ``best``: no other plan is better in RAM, instructions or code
    and at least as good in the other two."""

    options: tuple[str, ...]
    workspace: int
    ram: int
    instructions: int | None
    code: int
    by_rows: int
    fits: bool | None
    best: bool = False


class Plans(Struct, frozen=True):
    """The plans of a network on a board, by rising RAM. ``usual`` is that of an export without
    options, if there is enough memory. ``fed`` is that of ``--feed``, with the input given row by
    row; None if the network doesn't allow that."""

    model: str
    board: str
    points: tuple[PlanPoint, ...]
    usual: PlanPoint
    fed: PlanPoint | None = None

    def __repr__(self) -> str:
        rams = [point.ram for point in self.points]
        return line(
            "Plans", self.model, f"on {self.board}:", f"{count(len(rams), 'plan')},",
            f"{min(rams, default=0):,} to {max(rams, default=0):,} B of RAM",
        )

    def _repr_html_(self) -> str:
        fits = {True: "yes", False: "no", None: None}
        return table(f"Plans of {self.model} on {self.board}, estimated", [
            (" ".join(p.options), p.workspace, p.ram, p.instructions, p.code, p.by_rows,
             fits[p.fits])
            for p in (*self.points, *(() if self.fed is None else (self.fed,)))
        ], ("options", "workspace", "RAM", "instructions", "code", "layers by rows", "fits"))

    @property
    def chosen(self) -> PlanPoint | None:
        """Returns the plan with the fewest instructions among those that fit the board; None if
        there is none."""
        fitting = [point for point in self.points if point.fits is not False]
        return min(fitting, key=_cost, default=None)


def _cost(point: PlanPoint) -> tuple[int, int]:
    return point.instructions or 0, point.ram


def plans_of(
    graph: Graph, board: Board, options: ExportOptions = DEFAULTS,
    progress: Callable[[str], None] | None = None,
) -> Plans:
    """Returns the plans of a network. All have ``options``, except ``optimize``, ``ram``, ``feed``
    and ``stream``, in which they differ. ``progress`` is called with the name of each step. Raises
    what exporting raises, but not because of too little memory."""
    return _Comparison(graph, board, options, progress or (lambda _: None)).plans()


class _Comparison:
    def __init__(
        self, graph: Graph, board: Board, options: ExportOptions, progress: Callable[[str], None]
    ) -> None:
        self._graph, self._board, self._say = graph, board, progress
        self._options = replace(options, optimize="balanced", ram=None, feed=False, stream=False)
        self._costs = Costs(board.target)

    def plans(self) -> Plans:
        """Returns all plans; of several with equal figures, the first."""
        points: dict[Level, PlanPoint] = {}
        for level in LEVELS:
            self._say(f"plan {level}")
            made = driver.prepare(
                self._graph, self._board, replace(self._options, optimize=level),
                lay_out=usual,
            )
            points[level] = self._point(("--optimize", level), made)
        known: dict[tuple[int, ...], PlanPoint] = {}
        own = points[self._board.optimize]
        for point in (own, *points.values(), *self._by_rows()):
            known.setdefault(_figures(point), point)
        found = tuple(_marked([known[figures] for figures in sorted(known)]))
        own = next(p for p in found if p.options == own.options)
        return Plans(self._graph.name, self._board.name, found, own, self._fed())

    def _by_rows(self) -> Iterator[PlanPoint]:
        """Yields plans with cascades, each with the option that gives it."""
        found: list[tuple[Made, CascadeSearch, float]] = []

        def lay_out(graph: Graph, around: Surroundings) -> LaidOut:
            found.append((*searched(graph, around), bearable(around)))
            return LaidOut(*found[-1][0])

        self._say("plan row by row")
        driver.prepare(self._graph, self._board, self._options, lay_out=lay_out)
        ((by_layer, search, most),) = found
        smallest = choice.smallest(search, by_layer, most)
        # That of least memory that allows whole tensors.
        options = {id(by_layer): ("--ram", str(by_layer[1].total))}
        made: dict[int, Made] = {id(by_layer): by_layer}
        for cascades in search.below(by_layer[1].total):
            fitting = choice.fitting(search, by_layer, search.made(cascades)[1].total)
            if fitting is not None and fitting is not by_layer:
                made[id(fitting)] = fitting
                options[id(fitting)] = ("--ram", str(fitting[1].total))
        if smallest is not None and smallest is not by_layer:
            made[id(smallest)] = smallest
            options[id(smallest)] = ("--optimize", "ram")
        for number, one in made.items():
            prepared = driver.prepare(
                self._graph, self._board, self._options,
                lay_out=lambda *_, one=one: LaidOut(one[0], one[1], by_layer[1].total),
            )
            yield self._point(options[number], prepared)

    def _fed(self) -> PlanPoint | None:
        try:
            made = driver.prepare(self._graph, self._board, self._options, feed=True)
        except CrtExportError:
            return None
        return self._point(("--feed",), made)

    def _point(self, options: tuple[str, ...], prepared: Prepared) -> PlanPoint:
        code = sum(self._costs.of(f.kernel).code for f in prepared.artifact.functions)
        usage = usage_of([prepared.artifact], code, self._options.const_inputs)
        stack = 0 if self._board.hosted else self._board.stack_size
        return PlanPoint(
            options, prepared.artifact.workspace_total,
            prepared.artifact.workspace_total + prepared.artifact.state_size + usage.io + stack,
            total_instructions(layers_of(prepared, self._board, None)), code,
            sum(len(n.parts) for n in prepared.graph.nodes if isinstance(n.op, Cascade)),
            None if self._board.hosted else not excess(self._board, usage),
        )


def _marked(points: Sequence[PlanPoint]) -> Iterator[PlanPoint]:
    """Yields the points with ``best`` set."""
    for point in points:
        own = _figures(point)
        others = [_figures(other) for other in points if _figures(other) != own]
        worse = any(
            all(a <= b for a, b in zip(other, own, strict=True)) for other in others
        )
        yield replace(point, best=not worse)


def _figures(point: PlanPoint) -> tuple[int, int, int]:
    return point.ram, point.instructions or 0, point.code


def percent_of(figure: int, of: int) -> float:
    """Returns the difference of ``figure`` and ``of``, in percent of ``of``."""
    return 100 * (figure - of) / max(of, 1)
