"""The whole story on one page: load, simplify, plan, lower, emit, package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import crtexport
from crtexport import passes, plan
from crtexport.accelerators import hand_over
from crtexport.artifact.abi import check_arguments
from crtexport.artifact.assemble import Options, Planned, assemble_package
from crtexport.artifact.blobs import Blob
from crtexport.artifact.common import package_constants
from crtexport.artifact.contents import least_bytes
from crtexport.artifact.contexts import needed_symbols
from crtexport.artifact.model import Artifact
from crtexport.artifact.symbols import sanitize_module
from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.backends.c_header import emit_header
from crtexport.backends.constants import (
    LargeData,
    Placement,
    all_constants,
    constants_module,
    constants_object,
    is_large,
)
from crtexport.backends.llvm_elf import reach_through_slots
from crtexport.backends.modules import Module, Split
from crtexport.devices.runtime import DECODER_SOURCE, DEVICE_HEADERS, ETHOS_U_HEADER, device_file
from crtexport.errors import CrtExportError
from crtexport.exported import Emit, Exported, Prepared, default_name, usage_beside, usage_of
from crtexport.firmware import npu
from crtexport.firmware.board import Board, Usage, check_budget, list_boards, load_board
from crtexport.firmware.budget import check_pools, room, with_pools
from crtexport.firmware.elf_abi import read_abi
from crtexport.firmware.external import ExternalFiles
from crtexport.firmware.joined import joined_files
from crtexport.ir import text as graph_text
from crtexport.ir.graph import Graph
from crtexport.ir.types import Rounding
from crtexport.kernels import text as kernel_text
from crtexport.kernels.inplace import InPlaceFacts
from crtexport.kernels.proof import ReplayProof
from crtexport.kernels.step import Remembered
from crtexport.mlf.contents import (
    ModelContents,
    ModelInfo,
    PackageContents,
    PackageInfo,
    plan_data,
)
from crtexport.mlf.objects import ObjectFacts, object_facts
from crtexport.mlf.writer import Progress as Written
from crtexport.mlf.writer import write_package
from crtexport.plan import check as plan_check
from crtexport.plan import text as plan_text
from crtexport.resources import templates_dir
from crtexport.schedules.choice import Choose, Kernels, by_default
from crtexport.schedules.sharing import weighing

if TYPE_CHECKING:
    from crtexport.backends.llvm_compile import Compiler
    from crtexport.schedules.records import ByRecord, Configuration

__all__ = [
    "STAGES", "Emit", "Exported", "Io", "Model", "Optimize", "Owner", "Pools", "Prepared",
    "Progress", "Stage", "configuration_of", "export", "load", "prepare", "prepare_package",
    "resolve_board", "runtime_headers", "stage",
]

Optimize = Literal["size", "balanced", "speed"]
Io = Literal["caller", "workspace"]
Owner = Literal["static", "shared", "caller"]
"""Whose the workspace is: each model's own, one for all models of a package, or the caller's."""
Pools = Sequence[tuple[str, int]]
"""Memories for the workspace, fastest first, and how many bytes it may take of each."""
Stage = Literal["graph", "plan", "picture", "kernels", "c", "llvm"]
Progress = Callable[[str], None]

Model = Path | str | Graph

STAGES: tuple[Stage, ...] = ("graph", "plan", "picture", "kernels", "c", "llvm")


def load(
    path: Path | str, *, rounding: str = "double", accelerators: Sequence[str] | None = None,
    board: Board | Path | str = "host",
) -> Graph:
    """The network in a file (model.json or .tflite, told apart by content), verified; compiled by
    Vela where ``accelerators`` name an Ethos-U ("ethos-u": that of the board)."""
    return npu.load_for(Path(path), Rounding(rounding), accelerators, lambda: resolve_board(board))


def resolve_board(board: Board | Path | str) -> Board:
    """A board by name, by the path of its YAML file, or as it is."""
    return board if isinstance(board, Board) else load_board(board)


def prepare(
    graph: Graph, board: Board, *, module_name: str | None = None,
    optimize: Optimize | None = None, workspace: Owner = "static",
    io: Io = "caller", pools: Pools = (), system_lib: bool = True,
    accelerators: Sequence[str] | None = None, progress: Progress | None = None,
    must_fit: bool = False, choose: Choose | None = None,
) -> Prepared:
    """Simplifies, plans and lowers; what the plan claims is proven before it is used.

    ``accelerators`` are the names of plugins that may take nodes; None: those of the board.
    ``must_fit`` refuses constants that are too large for the board before any work on them.
    ``choose`` picks the forms of kernels; by default the cost model does.
    """
    return prepare_package(
        [graph], board, module_names=None if module_name is None else [module_name],
        optimize=optimize, workspace=workspace, io=io, pools=pools, system_lib=system_lib,
        accelerators=accelerators, progress=progress, must_fit=must_fit, choose=choose,
    )[0]


def prepare_package(
    graphs: Sequence[Graph], board: Board, *, module_names: Sequence[str] | None = None,
    optimize: Optimize | None = None, workspace: Owner = "static",
    io: Io = "caller", pools: Pools = (), system_lib: bool = True,
    accelerators: Sequence[str] | None = None, progress: Progress | None = None,
    must_fit: bool = False, choose: Choose | None = None,
) -> tuple[Prepared, ...]:
    """:func:`prepare` for models that share a package: what is equal is there once.

    ``module_names``: one for each, in their order.
    """
    if module_names is not None and len(module_names) != len(graphs):
        raise CrtExportError(
            f"there are {len(graphs)} models, but {len(module_names)} module names",
            location="--module-name", hint="give one for each model, in their order, or none",
        )
    say = progress or (lambda _: None)
    names = module_names if module_names is not None else [graph.name for graph in graphs]
    level = optimize or board.optimize
    plugins = npu.plugins(board.accelerators if accelerators is None else accelerators)
    planned: list[Planned] = []
    looked_at = []
    for graph, name in zip(graphs, names, strict=True):
        say("simplify")
        result, module = passes.simplify(graph), sanitize_module(name)
        simplified, decisions = hand_over(result.graph, plugins, board.target, f"tvmgen_{module}")
        looked_at.append((result.channels, decisions))
        if must_fit:
            check_budget(board, Usage(constants=least_bytes(simplified)), _known_boards())
        kernel_of = Remembered(Kernels(board.target, level, choose))
        others = (*(model.graph for model in planned), *graphs[len(planned) + 1 :])
        before = [model.plan.pools for model in planned] if workspace == "static" else []
        say("plan memory")
        left = room(board, usage_beside((simplified, *others), io), pools, before)
        may = InPlaceFacts(kernel_of)
        made = plan.plan(simplified, facts=may, io_in_workspace=io == "workspace", pools=left)
        check_pools(board, (*before, made.pools), pools)
        plan_check.check(simplified, made, ReplayProof(kernel_of))
        options = Options(
            module, workspace == "caller", system_lib, _comment(graph, board),
            board.placement.workspaces, workspace == "shared",
        )
        planned.append(Planned(
            simplified, made, options, kernel_of, weighing(board.target, level)
        ))
    say("lower")
    return tuple(
        Prepared(model.graph, model.plan, artifact, *facts)
        for model, artifact, facts in zip(
            planned, assemble_package(planned), looked_at, strict=True
        )
    )


def _comment(graph: Graph, board: Board) -> tuple[str, ...]:
    """What opens every generated file."""
    return (
        f"Generated by crtexport {crtexport.__version__} for {board.name}.",
        f"Model: {graph.source} (SHA-256 {graph.sha256})",
        f"Rounding: {graph.rounding.value}",
    )


def export(
    model: Model | Sequence[Model], *, board: Board | Path | str = "host",
    output: Path | str | None = None, emit: Emit | None = None, optimize: Optimize | None = None,
    workspace: Owner = "static", io: Io = "caller", pools: Pools = (),
    large_data: LargeData = "auto", rounding: str = "double",
    module_name: str | Sequence[str] | None = None, system_lib: bool = True,
    split: Split | None = None, llvm_options: Sequence[str] = (), jobs: int | None = None,
    llvm_timeout: float | None = None, keep_failed: Path | str | None = None,
    accelerators: Sequence[str] | None = None, device_bundle: bool = False,
    tuning: Path | str | None = None, choose: Choose | None = None,
    progress: Progress | None = None, written: Written | None = None,
) -> Exported:
    """Exports a model, or several together, for a board as a Model Library Format package.

    Several models, each with a ``module_name`` if any is given, have one function registry, and
    what is equal in them is there once. ``output`` defaults to ``<modules>-<board>.tar`` in the
    current folder. ``pools``: memories for the workspace instead of the board's choice.
    ``large_data``: whether constants may be any distance from code; "auto" asks the board. For
    objects, ``split`` says which kernels get one of their own (none, operator, auto);
    ``llvm_options`` are LLVM's own, beside the board's; ``llvm_timeout`` is how many seconds it may
    take for one object, ``jobs`` how many are made at once, ``keep_failed`` the folder for the text
    of those on which LLVM fails. ``accelerators``: who may take nodes instead of those that the
    board names. ``device_bundle`` adds bundles of devices' programs for clang-offload-bundler.
    ``tuning`` is a file of what was measured of kernels, which decides about their forms; else
    ``choose`` does. ``progress`` is told steps, ``written`` bytes. Raises CrtExportError.
    """
    say = progress or (lambda _: None)
    target_board = with_pools(resolve_board(board), pools)
    chosen, level = emit or target_board.backend, optimize or target_board.optimize
    compiler = _compiler(
        target_board, chosen, level, split, llvm_options, llvm_timeout, keep_failed, jobs
    )
    tuned = _tuned(tuning, target_board, chosen, level, compiler)
    say("load")
    graphs, target_board = _read(model, rounding, accelerators, target_board, pools, compiler)
    prepared = prepare_package(
        graphs, target_board, module_names=_listed(module_name), optimize=optimize,
        workspace=workspace, io=io, pools=pools, system_lib=system_lib, must_fit=True,
        accelerators=accelerators, progress=progress,
        choose=tuned or choose or by_default(target_board.target, level, chosen),
    )
    artifacts = _artifacts(prepared, system_lib)
    check_budget(target_board, usage_of(artifacts, 0), _known_boards())
    say(f"generate {chosen}")
    sources, made = _emit(artifacts, target_board, compiler, large_data)
    objects = {f"{module.name}.o": data for module, data in made.items()}
    foreign = _foreign(prepared, target_board, {*sources, *objects})
    facts = {name: object_facts(name, data) for name, data in objects.items()}
    check_budget(target_board, usage_of(artifacts, _code_size(facts)), _known_boards())
    path = Path(output or default_name(artifacts, target_board.name))
    say("package")
    write_package(path, PackageContents(
        models=tuple(_contents(one, level, compiler, tuned) for one in prepared),
        target=target_board.target, board=target_board.to_data(),
        info=_info(chosen, _undefined(chosen, facts, foreign, artifacts), compiler, tuple(made)),
        sources=sources | foreign.sources, objects=objects | foreign.objects,
        runtime_headers=runtime_headers(artifacts), device_bundle=device_bundle,
        facts=facts | foreign.facts,
    ), written)
    return Exported(path, target_board.name, chosen, prepared)


def _listed(names: str | Sequence[str] | None) -> Sequence[str] | None:
    return [names] if isinstance(names, str) else names


def configuration_of(
    board: Board | Path | str, emit: Emit | None = None, optimize: Optimize | None = None,
    llvm_options: Sequence[str] = (),
) -> Configuration:
    """What the costs of kernels depend on besides their text in an export with these options."""
    chosen = resolve_board(board)
    kind, level = emit or chosen.backend, optimize or chosen.optimize
    compiler = _compiler(chosen, kind, level, None, llvm_options, None, None, None)
    return _configuration(chosen, kind, level, compiler)


def _configuration(
    board: Board, emit: Emit, optimize: Optimize, compiler: Compiler | None
) -> Configuration:
    from crtexport.schedules.records import Configuration  # noqa: PLC0415

    options = compiler.options if compiler else ()
    return Configuration.of(board.target, emit, optimize, _tools(compiler), options)


def _tuned(
    path: Path | str | None, board: Board, emit: Emit, optimize: Optimize,
    compiler: Compiler | None,
) -> ByRecord | None:
    """What chooses by the measurements in a file, if there is one."""
    if path is None:
        return None
    from crtexport.schedules import records  # noqa: PLC0415

    known = records.read(Path(path))
    wanted = _configuration(board, emit, optimize, compiler)
    otherwise = by_default(board.target, optimize, emit)
    return records.ByRecord(known.required(wanted), optimize, otherwise, known.sha256)


def _artifacts(prepared: Sequence[Prepared], registered: bool) -> list[Artifact]:
    """Those that fit into a function registry, where they are registered."""
    artifacts = [one.artifact for one in prepared]
    for artifact in artifacts if registered else ():
        check_arguments(artifact)
    return artifacts


def _read(
    model: Model | Sequence[Model], rounding: str, accelerators: Sequence[str] | None,
    board: Board, pools: Pools = (), compiler: Compiler | None = None,
) -> tuple[list[Graph], Board]:
    """The networks, and the board as they need it; ``compiler`` is told what will come."""
    models = [model] if isinstance(model, str | Path | Graph) else list(model)
    if not models:
        raise CrtExportError("there is no model to export")
    read = partial(load, rounding=rounding, accelerators=accelerators, board=board)
    graphs = [one if isinstance(one, Graph) else read(one) for one in models]
    if compiler is not None:
        compiler.expect(sum(len(graph.nodes) for graph in graphs))
    return graphs, npu.for_networks(board, graphs, accelerators, fixed=bool(pools))


def _foreign(prepared: Sequence[Prepared], board: Board, taken: set[str]) -> ExternalFiles:
    """The files of the graphs' modules, none of them called as one that is ``taken``, and the
    decoder of devices' programs, if there are such."""
    ours = None
    if any(module.kind == "object" for one in prepared for module in one.graph.modules):
        from crtexport.backends.llvm_compile import empty_object  # noqa: PLC0415

        ours = read_abi(empty_object(board.target), board.name)
    files = joined_files({one.artifact.module: one.graph.modules for one in prepared}, ours)
    decoder = (DECODER_SOURCE,) if any(one.artifact.images for one in prepared) else ()
    for name in (*files.sources, *files.objects):
        if name in taken or name in decoder:
            raise CrtExportError(
                "generated code has a file of this name", location=("modules", name),
                hint="rename the file",
            )
    files.sources.update((name, device_file(name).decode()) for name in decoder)
    return files


def _known_boards() -> Iterator[Board]:
    """Read when somebody looks: a broken board file must not stop exports for another."""
    yield from list_boards()


def _emit(
    artifacts: Sequence[Artifact], board: Board, compiler: Compiler | None, large_data: LargeData
) -> tuple[dict[str, str], dict[Module, Blob]]:
    """Sources and objects. Constants are an object, but for those that are C text."""
    first, *others = artifacts
    large = is_large(first, board.target, large_data, board.large_data_threshold, others)
    linked = True
    sources: dict[str, str] = {}
    objects: dict[Module, Blob] = {}
    if compiler is None:
        from crtexport.backends.c_source import MAX_CONSTANTS, emit_c  # noqa: PLC0415

        linked = large or package_constants(artifacts) > MAX_CONSTANTS
        for artifact in artifacts:
            sources |= emit_c(artifact, linked=linked)
    else:
        symbols = {constant.symbol for constant in all_constants(artifacts)} if large else {}
        objects |= {
            module: reach_through_slots(data, symbols) if symbols else data
            for module, data in compiler.compile(*artifacts).items()
        }
    if linked:
        placement = Placement(
            large, table=compiler is None, slots=large and compiler is not None
        )
        constants = constants_object(first, board.target, placement, others)
        if constants is not None:
            objects[constants_module(first)] = constants
    return sources, objects


def _compiler(
    board: Board, emit: Emit, optimize: Optimize, split: Split | None, options: Sequence[str],
    timeout: float | None, keep_failed: Path | str | None, jobs: int | None,
) -> Compiler | None:
    """What makes objects, if such are exported; LLVM's options are checked here."""
    if emit == "c":
        if options or split:
            raise CrtExportError(
                "C sources are exported; this is for objects",
                location="--llvm-option" if options else "--split",
                hint="export objects with --emit llvm, or leave the option out",
            )
        return None
    # Imported here so that exporting C works where LLVM is not installed.
    from crtexport.backends import llvm_compile  # noqa: PLC0415

    return llvm_compile.Compiler(
        board.target, optimize, split=split or "auto",
        options=((f"board {board.name}: llvm_options", board.llvm_options),
                 ("--llvm-option", options)),
        timeout=llvm_compile.TIMEOUT if timeout is None else timeout,
        keep_failed=None if keep_failed is None else Path(keep_failed), jobs=jobs,
    )


def _code_size(objects: Mapping[str, ObjectFacts]) -> int:
    return sum(
        size for facts in objects.values() for section, size in facts.sections.items()
        if ".text" in section
    )


def _contents(
    prepared: Prepared, optimize: Optimize, compiler: Compiler | None, tuned: ByRecord | None
) -> ModelContents:
    graph = prepared.graph
    info = ModelInfo(
        optimize=optimize, rounding=graph.rounding.value, source=graph.source,
        source_sha256=graph.sha256, plan=plan_data(graph, prepared.plan),
        llvm_options=compiler.options if compiler else (),
        channels=tuple(asdict(layer) for layer in prepared.channels),
        decisions=tuple(asdict(decision) for decision in prepared.decisions),
    )
    if tuned is not None:
        info["tuning"] = {"sha256": tuned.sha256, "layers": tuned.layers(graph)}
    return ModelContents(
        prepared.artifact, emit_header(prepared.artifact), graph_text.dump(graph), info,
        graph.modules,
    )


def _info(
    emit: Emit, undefined: tuple[str, ...], compiler: Compiler | None, modules: tuple[Module, ...]
) -> PackageInfo:
    return PackageInfo(emit=emit, undefined=undefined, tools=_tools(compiler), modules=modules)


def _tools(compiler: Compiler | None) -> dict[str, str]:
    """The versions of what makes code."""
    tools = {"crtexport": crtexport.__version__}
    return {**tools, "llvm": compiler.version()} if compiler else tools


def _undefined(
    emit: Emit, objects: Mapping[str, ObjectFacts], foreign: ExternalFiles,
    artifacts: Sequence[Artifact],
) -> tuple[str, ...]:
    """What the code leaves to the firmware: exactly, for objects; at most, for C sources. What
    modules of others need besides is theirs to know."""
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
    """The runtime headers that go into a package of these models, by path below
    ``runtime/include``."""
    more = list(DEVICE_HEADERS) if any(artifact.images for artifact in artifacts) else []
    if any(function.commands for artifact in artifacts for function in artifact.externals):
        more.append(ETHOS_U_HEADER)
    root = templates_dir() / "runtime" / "include"
    return {name: device_file(name) for name in more} | {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*.h"))
    }


def stage(
    model: Path | str | Graph, stage: Stage, *, board: Board | Path | str = "host",
    rounding: str = "double", io: Io = "caller", accelerators: Sequence[str] | None = None,
) -> str:
    """The text of one stage of the way from model to code, for people to read."""
    (graph,), target_board = _read(model, rounding, accelerators, resolve_board(board))
    emit: Emit = "c" if stage == "c" else "llvm" if stage == "llvm" else target_board.backend
    prepared = prepare(
        graph, target_board, io=io, accelerators=accelerators,
        choose=by_default(target_board.target, target_board.optimize, emit),
    )
    match stage:
        case "graph":
            return graph_text.dump(prepared.graph)
        case "plan":
            return plan_text.dump(prepared.graph, prepared.plan)
        case "picture":
            from crtexport.plan import svg  # noqa: PLC0415

            return svg.draw(prepared.graph, prepared.plan)
        case "kernels":
            return "\n\n".join(kernel_text.dump(f.kernel) for f in prepared.artifact.functions)
        case "c":
            sources, _ = _emit((prepared.artifact,), target_board, None, "auto")
            return "\n".join(sources.values())
        case "llvm":
            from crtexport.backends.llvm_module import emit_llvm  # noqa: PLC0415

            modules = emit_llvm(prepared.artifact, target_board.target, target_board.optimize)
            return "\n".join(modules.values())
