"""The report of a package, from its metadata.

A package has code, constants, sizes and the changes that the export made, but not the network. So
shapes, multiply-accumulates and lifetimes of tensors are only in reports of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crtexport.firmware.board import Board, Usage
from crtexport.firmware.package import board_from_package
from crtexport.mlf.metadata import CrtexportSection, ModuleSection
from crtexport.mlf.reader import Package, PackageTensor, open_package
from crtexport.reports import figures
from crtexport.reports.findings import pruned, warnings
from crtexport.reports.function_sizes import function_sizes
from crtexport.reports.memories import memories
from crtexport.reports.network import quantized_range
from crtexport.reports.peers import figures_for, provenance
from crtexport.reports.shown import ShownReport
from crtexport.support.errors import CrtExportError


def report(path: Path, command: str = "") -> figures.Report:
    """Returns the report of the package ``path``, which must have one model. ``command`` as for
    :func:`crtexport.reports.collect.report`. Raises CrtExportError for a file that is no package,
    for a package of another exporter, and for one of several models."""
    package = open_package(path)
    if len(package.modules) > 1:
        raise CrtExportError(
            f"a report is of one model; the package has {', '.join(package.modules)}",
            location=str(path), hint="`crtexport report MODEL --board NAME` makes one of each",
        )
    own, section = package.described, package.own_section
    board = board_from_package(package)
    totals = _totals(package, own, section, board)
    used_memories = memories(board, _usage(own, totals))
    peers = figures_for(own.source_sha256, board.name)
    return ShownReport(
        crtexport=section.version,
        model=figures.ReportedModel(
            package.module, own.source, own.source_sha256, own.numerics
        ),
        board=figures.ReportedBoard(board.name, board.description, board.cpu.name, board.hosted),
        fits=None if board.hosted else all(one.used <= one.size for one in used_memories),
        memories=used_memories,
        totals=totals,
        pools=(
            figures.MemoryContent(
                "memory" if board.hosted else board.placement.workspace, own.workspace.bytes
            ),
            *(figures.MemoryContent(part.memory, part.bytes) for part in own.workspace.spilled),
        ),
        steps=(), layers=tuple(_layers(package, section)),
        tensors=(*_tensors(package.inputs, "input"), *_tensors(package.outputs, "output")),
        peers=peers, sources={figure.source: provenance(figure) for figure in peers},
        findings=(*warnings(section.emit, used_memories, totals), *_findings(own)),
        reproduce=figures.Reproduce(
            command=command, emit=section.emit, optimize=own.optimize, options={},
            llvm_options=own.llvm_options, tools=section.tools,
        ),
    )


def _totals(
    package: Package, own: ModuleSection, section: CrtexportSection, board: Board
) -> figures.Totals:
    code, other = None, 0
    if section.emit == "llvm":
        sections = [one.sections for one in section.objects.values()]
        code = sum(size for one in sections for name, size in one.items() if "text" in name)
        kept = (".bss", ".data", ".lbss")
        other = sum(size for one in sections for name, size in one.items() if name not in kept)
        other = max(other - code - own.constants_bytes, 0)
    handed = (*package.inputs, *package.outputs) if own.io == "caller" else ()
    io = sum(tensor.nbytes for tensor in handed)
    workspace = own.workspace.together
    workspace += 0 if own.image_buffer is None else own.image_buffer.bytes
    stack = 0 if board.hosted else board.stack_size
    return figures.Totals(
        flash=(code or 0) + own.constants_bytes + other, code=code, weights=own.constants_bytes,
        tables=0, other=other, ram=workspace + own.state.bytes + io + stack, workspace=workspace,
        state=own.state.bytes, io=io, stack=stack, stack_measured=None, macs=None,
        instructions=None, instructions_are="unknown",
    )


def _usage(own: ModuleSection, totals: figures.Totals) -> Usage:
    spilled = tuple((part.memory, part.bytes) for part in own.workspace.spilled)
    return Usage(
        constants=own.constants_bytes, code=totals.code or 0, other=totals.other, io=totals.io,
        workspace=totals.workspace + totals.state - sum(size for _, size in spilled),
        spilled=spilled,
    )


def _layers(package: Package, section: CrtexportSection) -> Iterator[figures.Layer]:
    """Yields the layers in the order of the plan; of layers that share a kernel, the first has the
    bytes of its code."""
    order = {name: number for number, name in enumerate(_planned(package))}
    found = [
        (layer.partition(": ")[0], kernel.symbol)
        for one in section.objects.values() for kernel in one.kernels for layer in kernel.layers
    ]
    code, seen = function_sizes(package), set[str]()
    for name, symbol in sorted(found, key=lambda pair: order.get(pair[0], len(order))):
        yield figures.Layer(
            step=-1, name=name, operator="", dtype="", shape=(), macs=None, instructions=None,
            runs=None, code=0 if symbol in seen else code.get(symbol, 0), weights=0, tables=0,
            kernel=symbol, variant="", candidates=0, by="crtexport",
        )
        seen.add(symbol)


def _planned(package: Package) -> Iterator[str]:
    """Yields the names of the plan's nodes; none if the package has no plan."""
    steps = (package.plan_data or {}).get("steps")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict) and isinstance(step.get("node"), str):
            yield step["node"]


def _tensors(
    tensors: tuple[PackageTensor, ...], space: str
) -> Iterator[figures.ReportedTensor]:
    for number, tensor in enumerate(tensors):
        quant = tensor.quantization
        yield figures.ReportedTensor(
            id=number, name=tensor.name, dtype=tensor.dtype, shape=tensor.shape or (),
            bytes=tensor.nbytes, space=space, pool=0, offset=0, first=-1, last=-1,
            quantization=None if quant is None else quantized_range(
                tensor.dtype, quant.scale, quant.zero_point
            ),
        )


def _findings(own: ModuleSection) -> Iterator[figures.Finding]:
    for layer in own.channels:
        if layer.inputs[0] != layer.inputs[1] or layer.outputs[0] != layer.outputs[1]:
            yield pruned(layer)
    for decision in own.decisions:
        kind: figures.FindingKind = "offloaded" if decision.function else "refused"
        yield figures.Finding(kind, decision.layer, decision.reason or decision.accelerator)
