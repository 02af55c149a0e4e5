"""The content of a package beside code: headers, texts, metadata, and external files.

Exports import this while LLVM works, and with it the modules that read objects and write metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import asdict

from crtexport.artifact.byte_sources import Blob
from crtexport.artifact.contexts import needed_symbols
from crtexport.artifact.model import Artifact
from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.backends.c.header import emit_header
from crtexport.devices.runtime import DECODER_SOURCE, DEVICE_HEADERS, ETHOS_U_HEADER, device_file
from crtexport.firmware.board_schema import Board
from crtexport.firmware.elf_abi import read_abi
from crtexport.firmware.external import ExternalFiles
from crtexport.firmware.link_inputs import joined_files
from crtexport.ir import text as graph_text
from crtexport.ir.graph import Graph
from crtexport.mlf.contents import (
    ModelContents,
    ModelInfo,
    PackageContents,
    PackageInfo,
    plan_data,
)
from crtexport.mlf.objects import ObjectFacts, object_facts
from crtexport.mlf.writer import Progress, write_package
from crtexport.pipeline.codegen import Code, Generator
from crtexport.pipeline.options import Emit, ExportOptions
from crtexport.pipeline.result import Prepared
from crtexport.pipeline.summary.records import NetworkSummary
from crtexport.pipeline.summary.summarize import summary_of
from crtexport.support.errors import CrtExportError
from crtexport.support.resources import templates_dir

if TYPE_CHECKING:
    from crtexport.schedules.select.tuning_records import ByRecord


class PackageBuilder:
    """A package in the making: begun with what is known before there is code.

    ``read`` are the networks as imported; ``tuned``: what chose the variants of kernels by
    measurements. ``summaries`` are those of the networks, None where calls can't be
    matched with layers.
    """

    code_size = 0
    """Bytes of our own objects' code."""

    def __init__(
        self, prepared: Sequence[Prepared], read: Sequence[Graph], board: Board,
        generator: Generator, tuned: ByRecord | None, options: ExportOptions,
    ) -> None:
        self._board, self._generator = board, generator
        self.summaries = tuple(
            _summary(one, graph, board, options.const_inputs)
            for one, graph in zip(prepared, read, strict=True)
        )
        self._models = tuple(
            _model(one, summary, generator, tuned)
            for one, summary in zip(prepared, self.summaries, strict=True)
        )
        self._contents: PackageContents | None = None
        self._facts: dict[str, ObjectFacts] = {}

    def look(self, name: str, data: Blob) -> None:
        """Reads an object that will be added, while others are still made."""
        self._facts[name] = object_facts(name, data)

    def add(self, code: Code, *, device_bundle: bool = False) -> None:
        """Adds the code, and files of external modules; CrtExportError where those don't fit."""
        artifacts = [model.artifact for model in self._models]
        sources, made = code
        objects = {f"{module.name}.o": data for module, data in made.items()}
        foreign = _foreign(self._models, self._board, {*sources, *objects})
        facts = {
            name: self._facts.get(name) or object_facts(name, data)
            for name, data in objects.items()
        }
        self.code_size = sum(
            size for own in facts.values() for section, size in own.sections.items()
            if ".text" in section
        )
        emit = self._generator.emit
        self._contents = PackageContents(
            models=self._models, target=self._board.target, board=self._board.to_data(),
            info=PackageInfo(
                emit=emit, undefined=_undefined(emit, facts, foreign, artifacts),
                tools=self._generator.tools(), modules=tuple(made),
            ),
            sources=sources | foreign.sources, objects=objects | foreign.objects,
            runtime_headers=runtime_headers(artifacts), device_bundle=device_bundle,
            facts=facts | foreign.facts,
        )

    @property
    def contents(self) -> PackageContents:
        """Everything, once code was added."""
        if self._contents is None:
            raise CrtExportError("the package has no code yet")
        return self._contents

    def write(self, path: Path, progress: Progress | None = None) -> None:
        """Writes the package; as :func:`crtexport.mlf.writer.write_package`."""
        write_package(path, self.contents, progress)


def _summary(
    prepared: Prepared, read: Graph, board: Board, const_inputs: bool
) -> NetworkSummary | None:
    try:
        return summary_of(prepared, read, board, const_inputs=const_inputs)
    except CrtExportError:  # calls that can't be matched with layers; the code is fine
        return None


def _model(
    prepared: Prepared, summary: NetworkSummary | None, generator: Generator,
    tuned: ByRecord | None,
) -> ModelContents:
    graph = prepared.graph
    info = ModelInfo(
        optimize=generator.optimize, numerics=graph.numerics.value, source=graph.source,
        source_sha256=graph.sha256, plan=plan_data(graph, prepared.plan),
        llvm_options=generator.llvm_options,
        channels=tuple(asdict(layer) for layer in prepared.channels),
        decisions=tuple(asdict(decision) for decision in prepared.decisions),
    )
    if summary is not None:
        info["network"] = to_builtins(summary)
    if tuned is not None:
        info["tuning"] = {"sha256": tuned.sha256, "layers": tuned.layers(prepared.lowered)}
    return ModelContents(
        prepared.artifact, emit_header(prepared.artifact), graph_text.dump(graph), info,
        graph.modules,
    )


def _foreign(models: Sequence[ModelContents], board: Board, file_names: set[str]) -> ExternalFiles:
    """Returns the files of the graphs' modules, none of them called as one of ``file_names``, and
    the decoder of device programs, if there are any."""
    ours = None
    if any(module.kind == "object" for model in models for module in model.externals):
        from crtexport.backends.llvm.compile import empty_object  # noqa: PLC0415

        ours = read_abi(empty_object(board.target), board.name)
    files = joined_files({model.artifact.module: model.externals for model in models}, ours)
    decoder = (DECODER_SOURCE,) if any(model.artifact.images for model in models) else ()
    for name in (*files.sources, *files.objects):
        if name in file_names or name in decoder:
            raise CrtExportError(
                "generated code has a file of this name", location=("modules", name),
                hint="rename the file",
            )
    files.sources.update((name, device_file(name).decode()) for name in decoder)
    return files


def _undefined(
    emit: Emit, objects: Mapping[str, ObjectFacts], foreign: ExternalFiles,
    artifacts: Sequence[Artifact],
) -> tuple[str, ...]:
    """Returns the symbols that the code leaves to the firmware: exactly, for objects; at most, for
    C sources. External modules may need more."""
    theirs = {symbol for fact in foreign.facts.values() for symbol in fact.undefined}
    theirs -= {symbol for fact in foreign.facts.values() for symbol in fact.defined}
    announced = {*theirs, *(s for artifact in artifacts for s in needed_symbols(artifact))}
    if emit == "c":
        return tuple(sorted({*UNDEFINED_ALLOWED, *announced}))
    made = objects.values()
    defined = {symbol for facts in made for symbol in (*facts.defined, *facts.hidden)}
    needed = {symbol for facts in made for symbol in facts.undefined} - defined
    strange = sorted(needed - announced - set(UNDEFINED_ALLOWED))
    if strange:
        raise CrtExportError(
            f"the generated code needs functions that firmware may not have: {', '.join(strange)}",
            hint="please report this with the model and the board",
        )
    return tuple(sorted(needed | theirs))


def runtime_headers(artifacts: Sequence[Artifact] = ()) -> dict[str, bytes]:
    """Returns the runtime headers that go into a package of these models, by path below
    ``runtime/include``."""
    more = list(DEVICE_HEADERS) if any(artifact.images for artifact in artifacts) else []
    if any(function.commands for artifact in artifacts for function in artifact.externals):
        more.append(ETHOS_U_HEADER)
    root = templates_dir() / "runtime" / "include"
    return {name: device_file(name) for name in more} | {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*.h"))
    }
