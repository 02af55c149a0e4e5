"""``crtexport bench``: the cost of networks on boards, by layer, beside that of other tools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

import click
import msgspec
from msgspec.structs import asdict, replace

from crtexport.cli import bench_host as bench_host_cli
from crtexport.cli.accelerators import show_beside
from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    accelerator_option,
    code_options,
    complete_boards,
    input_option,
    numerics_option,
    timeout_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import FILE, MODEL_FILE
from crtexport.cli.results import read_arrays
from crtexport.cli.tuning import cache_for, show_tuned, tune_all, tuning_options
from crtexport.firmware.board import user_files
from crtexport.importers.files import data_files
from crtexport.pipeline.driver import load, resolve_board
from crtexport.pipeline.options import ExportChanges, ExportOptions
from crtexport.reports import chart
from crtexport.reports.bench import Bench, bench
from crtexport.reports.host import HostBench, bench_host
from crtexport.reports.measure import MeasureSetting
from crtexport.reports.peers import provenance
from crtexport.reports.tune import Tuned

_LONGEST_NAME = 36


@click.command("bench", cls=Verb)
@click.argument("models", type=MODEL_FILE, nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--board", "boards", metavar="NAME|FILE", multiple=True, required=True,
    shell_complete=complete_boards,
    help="A board to measure on; may be repeated.",
)
@code_options
@numerics_option
@accelerator_option
@input_option()
@tuning_options
@click.option(
    "--chart", "picture", type=FILE, metavar="FILE.svg|png",
    help="Draw a bar chart of the instructions, with those of other tools.",
)
@click.option(
    "--onnx", type=FILE, metavar="FILE.onnx",
    help="The same network as ONNX, to compare with ONNX Runtime on this computer.",
)
@timeout_option()
@with_output
def command(
    out: Output, models: tuple[Path, ...], boards: tuple[str, ...], input_file: Path | None,
    tune_it: bool, picture: Path | None, onnx: Path | None, timeout: float,
    **chosen: Unpack[ExportChanges],
) -> None:
    """Export each MODEL for each board, run its firmware in QEMU and measure it.

    Instructions are counted exactly; they are not cycles. For well-known networks, recorded figures
    of other tools are shown, too. On boards that are this computer, CPU time is compared with
    LiteRT and, with --onnx, ONNX Runtime. With --accelerator, everything is measured without and
    with it.
    """
    options = ExportOptions(**chosen)
    accelerators = options.accelerators
    tuning = None if options.tuning is None else Path(options.tuning)
    if picture is not None:
        chart.check(picture)
    if onnx is not None and len(models) > 1:
        raise click.UsageError("--onnx goes with one model")
    hosted = [name for name in boards if resolve_board(name).hosted]
    if hosted and (tune_it or tuning is not None or accelerators):
        raise click.UsageError(f"tuning and accelerators are for boards in QEMU, not {hosted[0]}")
    _claim(out, models, (input_file, onnx), boards, picture, tuning, tune_it)
    inputs = read_arrays(input_file)
    tunings: list[Tuned] = []
    results: list[Bench] = []
    timed: list[HostBench] = []
    with out.steps() as step:
        for model, board in itertools.product(models, map(resolve_board, boards)):
            step(f"measure {model.name} on {board.name}")
            if board.hosted:
                timed.append(bench_host(model, board=board, inputs=inputs, onnx=onnx, **chosen))
            else:
                whole = MeasureSetting(model, board, options, inputs, timeout)
                each = [_changed(whole, accelerators=()), whole] if accelerators else [whole]
                if tune_it:
                    cache = cache_for([model], tuning)
                    tunings += tune_all(each, cache, step)
                    each = [_changed(setting, tuning=cache) for setting in each]
                results += map(bench, each)
    for host_result in timed:
        bench_host_cli.show(out, host_result)
    tuned = show_tuned(out, tunings)
    for result in results:
        _show(out, result)
    if accelerators:
        show_beside(out, results)
    if len(results) > 1:
        _summary(out, results)
    _peers_note(out, results)
    if picture is not None:
        chart.draw(results, picture, timed)
        out.line(f"chart: {picture}")
    out.result({
        "benches": [_data(result) for result in results],
        "timings": [bench_host_cli.data(result) for result in timed],
        **tuned,
    })


def _changed(setting: MeasureSetting, **changes: Unpack[ExportChanges]) -> MeasureSetting:
    """Returns ``setting`` with ``changes`` to its options."""
    return replace(setting, options=replace(setting.options, **changes))


def _claim(
    out: Output, models: Sequence[Path], other_files: Sequence[Path | None], boards: Sequence[str],
    picture: Path | None, tuning: Path | None, tune_it: bool,
) -> None:
    """Raises CrtExportError if a file that the command writes is one that it reads."""
    caches = [cache_for([model], tuning) for model in models] if tune_it else []
    read = [*models, *other_files, *(file for name in boards for file in user_files(name))]
    if picture is not None or caches:
        read += [data for model in models for data in data_files(load(model))]
    claim(out, {"--chart": picture}, reads=(*read, tuning, *caches))
    for cache in dict.fromkeys(caches):
        claim(out, {"--tuning": cache}, reads=read)


def _data(result: Bench) -> dict[str, Any]:
    data = msgspec.to_builtins(replace(result, peers=()))
    for layer, values in zip(result.layers, data["layers"], strict=True):
        values["per_mac"] = layer.per_mac
    return {
        **data, "macs": result.macs, "flash_size": result.flash_size, "startup": result.startup,
        "peers": [asdict(figure) for figure in result.peers],
        "provenance": {f.source: provenance(f) for f in result.peers},
    }


def _show(out: Output, result: Bench) -> None:
    _show_layers(out, result)
    how = "exact" if result.exact else "estimated by a timer"
    out.table("Measured", ("what", "value"), (
        (f"instructions of the first inference ({how})", _or_dash(result.first)),
        ("instructions of the second inference", _or_dash(result.second)),
        *_cycles(result),
        *([("instructions of a further result", result.further)]
          if result.further is not None else []),
        ("instructions to start up", _or_dash(result.startup)),
        ("bytes of flash, whole program without the test input", result.flash_size),
        ("bytes of workspace", result.workspace),
        ("bytes of state", result.state),
        ("bytes of stack", _or_dash(result.stack)),
    ))
    for title, sections in (("Flash", result.flash), ("RAM", result.ram)):
        rows = [(name, size) for name, size in sections.items() if size]
        if rows:
            out.table(title, ("section", "bytes"), rows)
    if result.peers and result.second is not None:
        out.table(
            "Other tools on the same file and board",
            ("", "instructions", "ours is", "cycles", "ours is", "start-up", "flash", "ours is",
             "RAM"),
            [
                (figure.peer, figure.instructions, _times(result.second, figure.instructions),
                 _or_dash(figure.cycles),
                 _times(result.cycles.mid if result.cycles else None, figure.cycles),
                 _or_dash(figure.start_up), _or_dash(figure.flash),
                 _times(result.flash_size, figure.flash), _or_dash(figure.ram))
                for figure in result.peers
            ],
        )


def _cycles(result: Bench) -> Iterator[tuple[str, str | int]]:
    if result.cycles is None:
        return
    yield "cycles of it (modelled, memory without waits)", result.cycles.mid
    yield "cycles at least and at most", f"{result.cycles.low:,} to {result.cycles.high:,}"
    if result.flash_cycles is not None and result.reading is not None:
        ahead, alone = result.flash_cycles
        waits = result.reading.wait_states
        yield f"cycles with the board's flash of {waits} wait states", alone
        yield "the same where following lines are prefetched in time", ahead


def _show_layers(out: Output, result: Bench) -> None:
    decided = any(layer.runs not in (1, None) for layer in result.layers)
    rows = [
        *(
            (_shorten(x.name), _or_dash(x.runs), x.output, x.macs, _or_dash(x.instructions),
             _or_dash(x.cycles.mid if x.cycles else None), _ratio(x.per_mac), x.code, x.constants)
            for x in result.layers
        ),
        ("total", "", "", result.macs, _or_dash(result.second),
         _or_dash(result.cycles.mid if result.cycles else None),
         _ratio(_per(result.second, result.macs)), sum(x.code for x in result.layers),
         sum(x.constants for x in result.layers)),
    ]
    columns = (
        "layer", "runs", "output", "MACs", "instructions", "cycles", "per MAC", "code", "constants"
    )
    hidden = [] if decided else ["runs"]
    if result.cycles is None:
        hidden.append("cycles")
    shown = [n for n, column in enumerate(columns) if column not in hidden]
    out.table(
        f"{_called(result)} on {result.board}, {result.emit}, {result.optimize}",
        tuple(columns[n] for n in shown), [tuple(row[n] for n in shown) for row in rows],
    )


def _summary(out: Output, results: Sequence[Bench]) -> None:
    out.table(
        "Total",
        ("model", "board", "instructions", "per MAC", "best other", "ours is", "flash",
         "workspace"),
        [
            (_called(r), r.board, _or_dash(r.second), _ratio(_per(r.second, r.macs)),
             r.peers[0].peer if r.peers else "-",
             _times(r.second, r.peers[0].instructions if r.peers else None), r.flash_size,
             r.workspace)
            for r in results
        ],
    )


def _called(result: Bench) -> str:
    return " + ".join((result.model, *result.accelerators))


def _peers_note(out: Output, results: Sequence[Bench]) -> None:
    notes = {f.source: provenance(f) for result in results for f in result.peers}
    for source, text in sorted(notes.items()):
        out.line(f"{source}: {text}")


def _shorten(name: str) -> str:
    """Returns a name of at most _LONGEST_NAME characters: its beginning (the layer's place in the
    network) and its end (the layer's own name)."""
    if len(name) <= _LONGEST_NAME:
        return name
    start = _LONGEST_NAME // 3
    return f"{name[:start]}…{name[start + 1 - _LONGEST_NAME :]}"


def _or_dash(value: int | None) -> int | str:
    return "-" if value is None else value


def _per(value: int | None, count: int) -> float | None:
    return None if value is None or not count else value / count


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _times(ours: int | None, theirs: int | None) -> str:
    return "-" if ours is None or not theirs else f"{ours / theirs:.2f}×"
