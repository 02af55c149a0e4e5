"""``crtexport inspect``: the contents of a package, or a stage of a model's export."""

from __future__ import annotations

from pathlib import Path
from tarfile import is_tarfile
from typing import Any

import click

from crtexport.cli.accelerators import show_decisions
from crtexport.cli.channels import show_channels
from crtexport.cli.functions import show_externals, show_model
from crtexport.cli.groups import Verb
from crtexport.cli.options import (
    DEFAULT_BOARD,
    accelerator_option,
    board_option,
    choices_options,
    io_option,
    note_board,
    numerics_option,
    optimize_option,
    tuning_option,
    weights_option,
    with_output,
)
from crtexport.cli.output import Output
from crtexport.cli.parameter_types import MODEL_OR_PACKAGE, Words
from crtexport.mlf.metadata import CrtexportSection, ModuleEntry, ModuleSection
from crtexport.mlf.reader import Package, PackageTensor, open_package
from crtexport.pipeline import driver


@click.command("inspect", cls=Verb)
@click.argument("path", metavar="PACKAGE|MODEL", type=MODEL_OR_PACKAGE)
@click.option(
    "--stage", type=Words(driver.STAGES),
    help="Print this stage of exporting MODEL instead of the summary of PACKAGE.",
)
@board_option
@optimize_option
@io_option
@weights_option
@numerics_option
@accelerator_option
@tuning_option
@choices_options
@with_output
def command(
    out: Output, path: Path, stage: driver.Stage | None, board: str | None, io: driver.Io,
    numerics: str, accelerators: tuple[str, ...] | None, choices: driver.InputChoices,
    weights: driver.Weights, optimize: driver.Optimize | None, tuning: Path | None,
) -> None:
    """Show the contents of PACKAGE, the inputs, outputs and external functions of MODEL, or a
    --stage of its export."""
    target = DEFAULT_BOARD if board is None else board
    if stage is not None:
        text = driver.stage(
            path, stage, board=target, numerics=numerics, io=io,
            accelerators=accelerators, choices=choices, weights=weights, optimize=optimize,
            tuning=tuning,
        )
        if out.as_json:
            out.result({"stage": stage, "text": text})
        else:
            out.raw(text)
        note_board(out, board)
        return
    if path.is_file() and not is_tarfile(path):
        show_model(out, path, target, numerics, choices)
        note_board(out, board)
        return
    package = open_package(path)
    out.result(_data(package))
    _summary(out, package)


def _data(package: Package) -> dict[str, Any]:
    return {
        "package": str(package.path),
        "files": {name: package.size(name) for name in package.names},
        "metadata": package.raw_metadata,
    }


def _summary(out: Output, package: Package) -> None:
    section = package.section
    writer = f"crtexport {section.version}" if section else "another exporter"
    out.line(
        f"{package.path}: Model Library Format {package.metadata.version}, written by {writer}"
    )
    out.line()
    if section:
        _show_section(out, section)
    for name, module in package.modules.items():
        _show_module(out, name, module, section.modules.get(name) if section else None)
        if section and name in section.modules:
            show_channels(out, section.modules[name].channels, each=True)
            show_decisions(out, section.modules[name].decisions)
            show_externals(
                out, section.modules[name], [i for i in section.devices if i.module == name]
            )
    for model in package.each:
        tensors = [("input", t) for t in model.inputs] + [("output", t) for t in model.outputs]
        whose = f" of {model.module}" if len(package.modules) > 1 else ""
        out.table(
            f"Inputs and outputs{whose}", ("", "name", "in C", "type", "bytes", "quantization"),
            ((kind, t.name, t.field or "-", _type(t), t.nbytes, _quant(t)) for kind, t in tensors),
        )
    out.table("Files", ("name", "bytes"), ((name, package.size(name)) for name in package.names))


def _show_section(out: Output, section: CrtexportSection) -> None:
    abi = section.abi
    out.table("Target", ("fact", "value"), [
        ("board", section.board.name),
        ("code", "objects" if section.emit == "llvm" else "C sources"),
        ("triple", abi.triple or "-"),
        ("processor", " ".join((abi.cpu, *abi.features))),
        ("float ABI", abi.float_abi or abi.abi or (
            "that of the triple" if abi.triple else "the compiler's"
        )),
        ("system library", "yes" if section.system_lib else "no"),
        ("needs from the firmware", _needs(section)),
    ])
    if section.objects:
        kinds = sorted({kind for made in section.objects.values() for kind in made.sections})
        out.table(
            "Objects", ("name", *kinds),
            (
                (name, *(made.sections.get(kind, 0) for kind in kinds))
                for name, made in section.objects.items()
            ),
        )


def _needs(section: CrtexportSection) -> str:
    if section.undefined.used is not None:
        return ", ".join(section.undefined.used) or "nothing"
    # For C sources, the compiler decides which of them are used.
    return f"at most {len(section.undefined.allowed)} symbols; --json lists them"


def _show_module(out: Output, name: str, module: ModuleEntry, own: ModuleSection | None) -> None:
    rows: list[tuple[str, object]] = [
        ("style", module.style),
        ("executor", ", ".join(module.executors) or "-"),
        ("target", "; ".join(module.target) or "-"),
        ("exported", module.export_datetime or "-"),
    ]
    for main in module.memory.functions.main:
        # The format counts memory that callers have to provide, our section all memory.
        workspace = f"{main.workspace_size_bytes:,}"
        if own is not None:
            workspace = f"{own.workspace.together:,}, of the {own.workspace.owner}"
        rows += [
            (f"workspace bytes (device {main.device})", workspace),
            ("constant bytes", f"{main.constants_size_bytes:,}"),
            ("input and output bytes", f"{main.io_size_bytes:,}"),
        ]
    out.table(f"Module {name}", ("fact", "value"), rows)


def _type(tensor: PackageTensor) -> str:
    if tensor.shape is None:
        return tensor.dtype
    return f"{tensor.dtype}[{'x'.join(map(str, tensor.shape))}]"


def _quant(tensor: PackageTensor) -> str:
    quant = tensor.quantization
    if quant is None:
        return "-"
    if len(quant.scale) == 1:
        return f"{quant.scale[0]:.9g} * (q - {quant.zero_point[0]})"
    return f"{len(quant.scale)} scales along axis {quant.axis}"
