"""``crtexport export`` (or just a model): from a network to a package.

Modules that only some options need are imported when these are used: importing them takes longer
than most exports.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click
from msgspec.structs import asdict

import crtexport
from crtexport.backends.llvm.pool import POOL
from crtexport.backends.modules import SPLITS
from crtexport.cli.accelerators import show_decisions
from crtexport.cli.channels import show_channels
from crtexport.cli.claims import claim
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    DEFAULT_BOARD,
    accelerator_option,
    board_option,
    choices_options,
    code_options,
    const_inputs_option,
    force_option,
    input_option,
    io_option,
    models_argument,
    note_board,
    numerics_option,
    outside_option,
    pool_option,
    system_lib_option,
    timeout_option,
    with_output,
)
from crtexport.cli.output import Output, named
from crtexport.cli.parameter_types import FILE, OUTPUT_FILE, SecondsType, Words
from crtexport.cli.tuning import show_tuned, tune_first, tuning_options
from crtexport.schedules.common.target_features import computes_floats

if TYPE_CHECKING:
    from crtexport.ir.graph import Graph
    from crtexport.pipeline import driver
    from crtexport.pipeline.options import ExportChanges, ExportOptions
    from crtexport.reports.tune import Tuned


@click.command("export", cls=Verb)
@models_argument
@board_option
@click.option(
    "-o", "--output", type=OUTPUT_FILE, metavar="FILE.tar",
    help="The package to write; by default MODEL-BOARD.tar in the current folder.",
)
@code_options
@click.option(
    "--workspace", type=Words(["static", "shared", "caller"]), default="static",
    show_default=True,
    help="Memory for intermediate results: each model's own, one for all models of the package, or "
    "the caller's.",
)
@io_option
@const_inputs_option
@pool_option
@click.option(
    "--large-data", type=Words(["auto", "always", "never"]), default="auto",
    show_default=True,
    help=(
        "x86-64: put constants into .lrodata, which may be larger than 2 GiB. auto: above the "
        "board's threshold."
    ),
)
@numerics_option
@accelerator_option
@click.option(
    "--module-name", "names", metavar="NAME", multiple=True,
    help="The NAME in tvmgen_NAME_run and all other symbols; by default the model's. For several "
    "models, repeat it in their order.",
)
@system_lib_option
@click.option(
    "--split", type=Words(SPLITS),
    help=(
        "Objects: all kernels in one object (none), one object per kernel (operator), or as many "
        "as help to compile in parallel (auto, the default)."
    ),
)
@click.option(
    "--llvm-option", "llvm_options", multiple=True, metavar="-NAME[=VALUE]",
    help="An option for LLVM, as in --llvm-option=-unroll-threshold=100; may be repeated.",
)
@click.option(
    "--llvm-timeout", type=SecondsType(),
    help="Time limit of LLVM for one object.",
)
@click.option(
    "--keep-failed", type=FILE, metavar="FOLDER",
    help="If LLVM fails, keep its input in this folder.",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), metavar="N",
    help="How many objects to compile at the same time; this doesn't change the result.",
)
@click.option(
    "--device-bundle", is_flag=True,
    help="Also write device programs as compressed bundles for clang-offload-bundler.",
)
@click.option(
    "--unpack", "folder", type=FILE, metavar="DIR",
    help="Also unpack headers, sources and objects into DIR; files that stay the same are not "
    "touched.",
)
@click.option(
    "--depfile", type=OUTPUT_FILE, metavar="FILE.d",
    help="Also write a dependency file for make or ninja.",
)
@click.option(
    "--zephyr", "application", type=FILE, metavar="DIR",
    help="Then write a Zephyr application into DIR and build it with the tree that ZEPHYR_BASE "
    "names.",
)
@choices_options
@tuning_options
@click.option("--run", "run_it", is_flag=True, help="Then build and run the board's firmware.")
@input_option("With --run")
@timeout_option("With --run")
@outside_option
@force_option("the folders of --unpack and --zephyr")
@with_output
def command(
    out: Output, models: tuple[Path, ...], board: str | None, output: Path | None,
    names: tuple[str, ...], folder: Path | None, depfile: Path | None,
    application: Path | None, tune_it: bool, run_it: bool, input_file: Path | None, outside: bool,
    force: bool, timeout: float, **chosen: Unpack[ExportChanges],
) -> None:
    """Export MODEL (model.json, .tflite or .onnx) as a package for a board.

    Several models go into one package and share equal kernels and constants.
    """
    if input_file is not None and not run_it:
        raise click.UsageError("--input goes with --run")
    target = DEFAULT_BOARD if board is None else board
    failed = chosen.get("keep_failed")
    claims = claim(
        out, {"-o": output, "--depfile": depfile}, reads=(*models, input_file),
        folders={
            "--unpack": folder, "--keep-failed": None if failed is None else Path(failed),
            "--zephyr": application,
        },
    )
    if chosen.get("emit") != "c":
        POOL.start()  # takes as long as what is imported here
    from crtexport.pipeline import driver  # noqa: PLC0415

    _find_tree(application)
    chosen |= {"module_name": names or None}
    options = driver.ExportOptions(**chosen)
    read: Sequence[driver.Model] = models
    with out.steps() as step:
        tuned: Sequence[Tuned] = ()
        if input_file is not None or outside or tune_it:
            read = graphs = _load(models, options, target, outside)
            _check_inputs(graphs, names, input_file)  # before any work
            if tune_it:
                options, tuned = tune_first(models, graphs, target, options, step)
        exported = driver.export(
            read, options, board=target, output=output, claims=claims, progress=step,
            written=step.written, compiled=step.counter("objects"),
        )
    if folder is not None:
        _unpack(exported.path, folder, force)
    if depfile is not None:
        _write_depfile(depfile, models, exported, target, options)
    _show(out, exported)
    note_board(out, board)
    _note_floats(out, exported)
    data = {**_data(exported), **show_tuned(out, tuned)}
    if run_it:
        data["run"] = _run(out, exported.path, input_file, application, force, timeout)
    elif application is not None:
        data["application"] = _build_application(out, exported.path, application, force)
    elif folder is None:
        _say_what_next(out, exported)
    out.result(data)


def _note_floats(out: Output, exported: driver.Exported) -> None:
    """Prints a note on stderr about floats that the board's processor computes in software."""
    if exported.target is None or computes_floats(exported.target.target):
        return
    from crtexport.pipeline.summary.soft_floats import soft_floats  # noqa: PLC0415

    several = len(exported.models) > 1
    for model in exported.models:
        if said := soft_floats(model, exported.target.target):
            out.notes([f"{model.artifact.module}: {said}" if several else said])


def _say_what_next(out: Output, exported: driver.Exported) -> None:
    board, package = exported.target, shlex.quote(str(exported.path))
    runs = board is not None and board.runner.kind != "none"
    run = f"`crtexport run {package}` runs it; " if runs else ""
    out.line(f"next: {run}`crtexport build {package} -o DIR` makes a project of it (see --format)")


def _find_tree(application: Path | None) -> None:
    """Raises ToolMissingError, before anything is written, where an application can't be built."""
    if application is not None:
        from crtexport.firmware.zephyr.runner import find_tree  # noqa: PLC0415

        find_tree()


def _load(
    models: Sequence[Path], options: ExportOptions, board: str, outside: bool
) -> list[Graph]:
    return [
        crtexport.load(
            model, numerics=options.numerics, accelerators=options.accelerators, board=board,
            allow_outside=outside, choices=options.choices,
        )
        for model in models
    ]


def _check_inputs(graphs: Sequence[Graph], names: Sequence[str], input_file: Path | None) -> None:
    if input_file is None:
        return
    from crtexport import package_actions  # noqa: PLC0415
    from crtexport.mlf.npz import load_npz  # noqa: PLC0415

    package_actions.check_inputs(graphs, names, load_npz(input_file))


def _run(
    out: Output, package: Path, input_file: Path | None, application: Path | None, force: bool,
    timeout: float,
) -> dict[str, object]:
    from crtexport.cli.run import run_and_show  # noqa: PLC0415

    return run_and_show(
        out, package, input_file=input_file, out_dir=application, force=force, timeout=timeout,
        runner="bare-metal" if application is None else "zephyr",
        trust_package=True,  # this very command made it, for the board that the user named
    )


def _write_depfile(
    path: Path, models: Sequence[Path], exported: driver.Exported, board: str,
    options: ExportOptions,
) -> None:
    from crtexport.cli.depfile import write_depfile  # noqa: PLC0415
    from crtexport.firmware.board import board_files  # noqa: PLC0415

    others = [*board_files(board), *([Path(options.tuning)] if options.tuning else [])]
    read = dict(zip(models, exported.read, strict=True))
    write_depfile(path, exported.path, read, others)


def _unpack(package: Path, folder: Path, force: bool) -> None:
    from crtexport.mlf.reader import open_package  # noqa: PLC0415
    from crtexport.mlf.unpack import unpack_for_build  # noqa: PLC0415

    unpack_for_build(open_package(package, verify=False), folder, force=force)


def _build_application(
    out: Output, package: Path, folder: Path, force: bool
) -> dict[str, object]:
    with out.steps() as step:
        step("build the application")
        built = crtexport.build(
            package, folder, runner="zephyr", trust_package=True, force=force
        )
    out.line(f"{built.elf}: {built.sections.flash_size} bytes of flash, "
             f"{built.sections.ram_size} of RAM")
    return {"folder": str(folder), "image": str(built.elf),
            "flash": built.sections.flash_size, "ram": built.sections.ram_size}


def _data(exported: driver.Exported) -> dict[str, object]:
    return {
        "package": str(exported.path),
        "board": exported.board,
        **named(model.artifact.module for model in exported.models),
        "emit": exported.emit,
        "bytes": exported.sizes,
        "channels": [
            asdict(layer) for model in exported.models for layer in model.channels
        ],
        "decisions": [
            asdict(decision)
            for model in exported.models for decision in model.decisions
        ],
    }


def _show(out: Output, exported: driver.Exported) -> None:
    what = "objects" if exported.emit == "llvm" else "C sources"
    names = ", ".join(model.artifact.module for model in exported.models)
    out.line(f"{exported.path}: {names} for {exported.board}, {what}")
    out.table("Memory", ("what", "bytes"), exported.sizes.items())
    from crtexport.ir.ops import Cascade  # noqa: PLC0415

    for model in exported.models:
        show_channels(out, model.channels, each=out.verbosity > 0)
        for node in model.graph.nodes if out.verbosity > 0 else ():
            if isinstance(node.op, Cascade):
                out.line(f"row by row: {', '.join(map(str, node.parts))}")
            elif node.parts:
                out.line(f"fused, which leaves out a result: {node}")
        if model.whole is not None:
            count = sum(
                len(node.parts) for node in model.graph.nodes if isinstance(node.op, Cascade)
            )
            out.line(
                f"{model.plan.total} bytes of workspace, {model.whole} with one whole tensor after"
                f" another: {count} layers run row by row"
            )
        show_decisions(out, model.decisions)
    if not out.silent:
        from crtexport.cli.short_report import show_export  # noqa: PLC0415

        show_export(out, exported)
