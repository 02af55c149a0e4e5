"""Prints the external functions of a model (which of them can be exported) and of a package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from crtexport.cli.output import Output
from crtexport.ir.modules import Device
from crtexport.mlf.metadata import ImageEntry, ModuleSection
from crtexport.passes.float_layers import float_layers
from crtexport.pipeline import driver


def show_model(
    out: Output, path: Path, board: str, numerics: str, choices: driver.InputChoices
) -> None:
    """Prints a model's inputs and outputs, the layers of a quantized model that are computed in
    floats, and whether each external function of its modules can be exported, and why."""
    from crtexport.firmware.classify import classify  # noqa: PLC0415

    graph = driver.load(path, numerics=numerics, choices=choices)
    chosen = driver.resolve_board(board)
    verdicts = classify(graph, chosen)
    out.line(
        f"{path}: a model of {len(graph.nodes)} operators; --stage shows the stages of its "
        "export, and exports can be inspected as packages"
    )
    ends = [
        (kind, graph.tensors[tensor])
        for kind, tensors in (("input", graph.inputs), ("output", graph.outputs))
        for tensor in tensors
    ]
    out.table("Inputs and outputs", ("", "name", "type", "bytes"), (
        (kind, tensor.name, tensor.type, tensor.type.nbytes) for kind, tensor in ends
    ))
    floats: dict[str, list[str]] = {}
    for node in float_layers(graph):
        floats.setdefault(node.origin or node.name, []).append(type(node.op).__name__)
    if floats:
        out.table("Computed in float32", ("layer", "operators"), (
            (layer, ", ".join(operators)) for layer, operators in floats.items()
        ))
    out.table(
        f"External functions, in the C runtime on {chosen.name}",
        ("function", "module", "kind", "device", "exportable", "why"),
        [
            (v.function, v.module, v.kind, _device(v.device), "yes" if v.exportable else "no",
             v.reason)
            for v in verdicts
        ] or [("none", "-", "-", "-", "-", "no operator calls an external function")],
    )
    out.result({
        "model": str(path), "board": chosen.name, "operators": len(graph.nodes),
        "tensors": [[kind, tensor.name, str(tensor.type)] for kind, tensor in ends],
        "floats": floats,
        "functions": [msgspec.to_builtins(verdict) for verdict in verdicts],
    })


def _device(device: Device | None) -> str:
    if device is None:
        return "-"
    return f"{device.kind} {device.id}" + (f" ({device.program})" if device.program else "")


def show_externals(
    out: Output, module: ModuleSection, images: Sequence[ImageEntry]
) -> None:
    """Prints the external functions by module and device, and the device programs; nothing for a
    model that has none."""
    if module.externals:
        out.table(
            "External functions", ("function", "module", "kind", "files", "device context"),
            ((e.symbol, e.module, e.kind, ", ".join(e.files), e.device or "-")
             for e in module.externals),
        )
    for external in module.externals:
        if external.commands:
            out.table(
                f"Commands for {external.symbol}",
                ("layer", "bytes of commands", "constant data", "arena", "fast memory"),
                ((c.layer, c.commands, c.constants, c.arena, c.fast) for c in external.commands),
            )
    if module.libraries:
        out.table(
            "Libraries to build with", ("library", "version", "from", "its folder in"),
            ((each.name, each.version, each.url, f"{each.variable}_PATH")
             for each in module.libraries),
        )
    if module.devices:
        out.table(
            "Device contexts", ("context", "kind", "id", "program", "hooks"),
            ((d.field, d.kind, d.id, d.program or "-", ", ".join(d.hooks))
             for d in module.devices),
        )
    if images:
        out.table(
            "Device programs",
            ("kind", "id", "program", "functions", "compression", "bytes", "stored", "CRC-32C"),
            ((i.kind, i.id, i.program or "-", ", ".join(i.functions) or "-", i.compression,
              i.original_size, i.stored_size, i.crc32c) for i in images),
        )
