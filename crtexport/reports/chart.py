"""Draws bar charts of benchmarks (instructions of each layer, and of an inference beside those of
other tools) and scatter plots of memory plans (RAM against instructions).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crtexport.reports.bench import Bench
from crtexport.reports.host import OURS, HostBench
from crtexport.reports.plans import Plans, percent_of
from crtexport.support.errors import CrtExportError, ToolMissingError, printable
from crtexport.support.outputs.single import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SUFFIXES = (".svg", ".png")
_OURS = "#1f5f8b"
_THEIRS = "#b8b8b8"
_LONGEST_NAME = 28
_OFF_SCALE = 2
"""Plans with this many times the usual instructions aren't drawn: on their scale, all others would
be one point."""


def check(path: Path) -> None:
    """Raises CrtExportError for a file that no chart can be written to, ToolMissingError without
    matplotlib; called before anything is measured."""
    if path.suffix.lower() not in _SUFFIXES:
        raise CrtExportError(
            f"charts are {' or '.join(_SUFFIXES)} files", location=str(path),
            hint="name the file accordingly",
        )
    if not path.parent.is_dir():
        raise CrtExportError("there is no such folder", location=str(path.parent))
    if importlib.util.find_spec("matplotlib") is None:
        raise ToolMissingError(
            "charts are drawn by matplotlib, which is not installed",
            hint="pip install 'crtexport[bench]', or leave the picture out",
        )


def draw(results: Sequence[Bench], path: Path, timed: Sequence[HostBench] = ()) -> None:
    """Writes a picture to ``path``, as SVG or PNG by its suffix: a row of two charts for each of
    ``results``, then a chart of times for each network that was ``timed`` on this computer."""
    heights = [0.22 * max(len(r.layers), 6) + 0.9 for r in results]
    heights += [0.22 * 6 + 0.9] * len(timed)
    with _figure(path, 11, sum(heights)) as figure:
        axes = figure.subplots(len(heights), 2, squeeze=False, height_ratios=heights)
        for row, result in zip(axes, results, strict=False):
            _layers(row[0], result)
            _totals(row[1], result)
        for row, host in zip(axes[len(results) :], timed, strict=True):
            _times(row[0], host)
            row[1].set_axis_off()


def draw_plans(plans: Plans, path: Path) -> None:
    """Writes a scatter plot of plans to ``path``: RAM in KiB, instructions in percent above the
    usual plan's, and as a label the options and the bytes of code above the usual plan's."""
    with _figure(path, 8, 5) as figure:
        axes = figure.subplots()
        usual = plans.usual
        points = [
            point for point in plans.points
            if point.instructions is not None and usual.instructions
            and point.instructions < _OFF_SCALE * usual.instructions
        ]
        for number, point in enumerate(points):
            x, y = point.ram / 1024, percent_of(point.instructions or 0, usual.instructions or 1)
            axes.plot(x, y, "o", color=_OURS if point.best else _THEIRS)
            more = point.code - usual.code
            label = f"{' '.join(point.options)}\n{more:+,} bytes of code"
            # Alternately above and below, so that labels of neighbours don't overlap.
            axes.annotate(
                label, (x, y), textcoords="offset points", fontsize=6,
                xytext=(6, -18 if number % 2 else 6),
            )
        axes.set_title(printable(f"{plans.model} on {plans.board}"), fontsize=9)
        axes.set_xlabel("KiB of RAM", fontsize=8)
        axes.set_ylabel("instructions, % more than usual (estimated)", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.margins(0.15)
        axes.spines[["top", "right"]].set_visible(False)


@contextmanager
def _figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yields a figure, and then writes it to ``path``, as SVG or PNG by its suffix. Sizes are in
    inches."""
    check(path)
    import matplotlib  # noqa: PLC0415

    matplotlib.use("agg")
    from matplotlib.figure import Figure  # noqa: PLC0415

    # A random salt of ids, or a date, would make every SVG different.
    with matplotlib.rc_context({"svg.hashsalt": "crtexport"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            with replacing(path) as stream:
                figure.savefig(stream, metadata=metadata, format=path.suffix[1:].lower())
        except OSError as error:
            raise CrtExportError(
                f"the chart can't be written ({error.strerror or error})", location=str(path)
            ) from error


def _layers(axes: Axes, result: Bench) -> None:
    counted = [(_label(x.name), x.instructions) for x in result.layers if x.instructions]
    axes.set_title(printable(f"{result.model} on {result.board}, {result.emit}"), fontsize=9)
    _bars(axes, counted, [_OURS] * len(counted))


def _totals(axes: Axes, result: Bench) -> None:
    bars = [(f.peer, f.instructions) for f in result.peers]
    colors = [_THEIRS] * len(bars)
    if result.second is not None:
        bars.insert(0, ("crtexport", result.second))
        colors.insert(0, _OURS)
    axes.set_title("instructions per inference", fontsize=9)
    _bars(axes, bars, colors)


def _times(axes: Axes, result: HostBench) -> None:
    axes.set_title(printable(
        f"{result.model} on {result.board}, {result.emit}: ns of CPU time per inference"
    ), fontsize=9)
    bars = [(timing.name, round(timing.median)) for timing in result.timings]
    _bars(axes, bars, [_OURS if name == OURS else _THEIRS for name, _ in bars])


def _bars(axes: Axes, bars: Sequence[tuple[str, int]], colors: Sequence[str]) -> None:
    positions = range(len(bars))
    drawn = axes.barh(list(positions), [value for _, value in bars], color=list(colors))
    axes.bar_label(drawn, [f"{value:,}" for _, value in bars], padding=3, fontsize=7)
    axes.set_yticks(list(positions), [name for name, _ in bars], fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.2)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _label(name: str) -> str:
    text = printable(name).replace("$", r"\$")
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"
