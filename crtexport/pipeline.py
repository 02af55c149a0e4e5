"""The whole story on one page: load, simplify, plan, lower, emit, package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import crtexport
from crtexport import importers, passes, plan, schedules
from crtexport.accelerators import Decision, hand_over
from crtexport.artifact.assemble import Options, assemble
from crtexport.artifact.blobs import Blob
from crtexport.artifact.contents import least_bytes
from crtexport.artifact.contexts import needed_symbols
from crtexport.artifact.model import Artifact
from crtexport.artifact.symbols import sanitize_module
from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.backends.c_header import emit_header
from crtexport.backends.constants import (
    LargeData,
    Placement,
    constants_module,
    constants_object,
    is_large,
)
from crtexport.backends.llvm_elf import reach_through_slots
from crtexport.backends.modules import Module, Split
from crtexport.errors import CrtExportError
from crtexport.firmware.board import Board, Usage, check_budget, list_boards, load_board
from crtexport.firmware.budget import check_pools, room, with_pools
from crtexport.firmware.elf_abi import read_abi
from crtexport.firmware.external import ExternalFiles, external_files
from crtexport.ir import text as graph_text
from crtexport.ir.graph import Graph
from crtexport.ir.types import Rounding
from crtexport.kernels import text as kernel_text
from crtexport.kernels.inplace import InPlaceFacts
from crtexport.kernels.proof import ReplayProof
from crtexport.kernels.step import Remembered
from crtexport.mlf.contents import PackageContents, PackageInfo, plan_data
from crtexport.mlf.objects import ObjectFacts, object_facts
from crtexport.mlf.writer import Progress as Written
from crtexport.mlf.writer import write_package
from crtexport.passes.channels import LayerChannels
from crtexport.plan import check as plan_check
from crtexport.plan import text as plan_text
from crtexport.plan.model import Plan
from crtexport.resources import templates_dir

if TYPE_CHECKING:
    from crtexport.backends.llvm_compile import Compiler

Emit = Literal["c", "llvm"]
Optimize = Literal["size", "balanced", "speed"]
Io = Literal["caller", "workspace"]
Pools = Sequence[tuple[str, int]]
"""Memories for the workspace, fastest first, and how many bytes it may take of each."""
Stage = Literal["graph", "plan", "picture", "kernels", "c", "llvm"]
Progress = Callable[[str], None]

STAGES: tuple[Stage, ...] = ("graph", "plan", "picture", "kernels", "c", "llvm")


@dataclass(frozen=True)
class Exported:
    """What an export made: the package's path, what is in it, and the plan behind it.

    ``channels``: what became of layers, where channels were removed; ``decisions``: what
    accelerators did with those that they looked at.
    """

    path: Path
    board: str
    emit: Emit
    artifact: Artifact
    graph: Graph
    plan: Plan
    channels: tuple[LayerChannels, ...] = ()
    decisions: tuple[Decision, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes: constants in flash, workspace, inputs and outputs."""
        return {
            "constants": self.artifact.constants_size,
            "workspace": self.artifact.workspace_total,
            "state": self.artifact.state_size,
            "inputs": sum(i.type.nbytes for i in self.artifact.inputs),
            "outputs": sum(o.type.nbytes for o in self.artifact.outputs),
        }


@dataclass(frozen=True)
class Prepared:
    """A model on its way: simplified, planned and lowered for a board."""

    graph: Graph
    plan: Plan
    artifact: Artifact
    channels: tuple[LayerChannels, ...] = ()
    decisions: tuple[Decision, ...] = ()


def load(path: Path | str, *, rounding: str = "double") -> Graph:
    """The network in a file (model.json or .tflite, told apart by content), verified."""
    return importers.load(Path(path), rounding=Rounding(rounding))


def resolve_board(board: Board | Path | str) -> Board:
    """A board by name, by the path of its YAML file, or as it is."""
    return board if isinstance(board, Board) else load_board(board)


def prepare(
    graph: Graph, board: Board, *, module_name: str | None = None,
    optimize: Optimize | None = None, workspace: Literal["static", "caller"] = "static",
    io: Io = "caller", pools: Pools = (), system_lib: bool = True,
    accelerators: Sequence[str] | None = None, progress: Progress | None = None,
    must_fit: bool = False,
) -> Prepared:
    """Simplifies, plans and lowers; what the plan claims is proven before it is used.

    ``accelerators`` are the names of plugins that may take nodes; None: those of the board.
    ``must_fit`` refuses constants that are too large for the board before any work on them.
    """
    say = progress or (lambda _: None)
    say("simplify")
    result = passes.simplify(graph)
    module = sanitize_module(module_name if module_name is not None else graph.name)
    simplified, decisions = hand_over(
        result.graph, board.accelerators if accelerators is None else accelerators, board.target,
        f"tvmgen_{module}",
    )
    if must_fit:
        check_budget(board, Usage(constants=least_bytes(simplified)), _known_boards())
    level = optimize or board.optimize

    kernel_of = Remembered(lambda context: schedules.lower(context, board.target, level))
    say("plan memory")
    planned = plan.plan(
        simplified, facts=InPlaceFacts(kernel_of), io_in_workspace=io == "workspace",
        pools=_room(simplified, board, io, pools),
    )
    check_pools(board, planned.pools, pools)
    plan_check.check(simplified, planned, ReplayProof(kernel_of))
    say("lower")
    comment = (
        f"Generated by crtexport {crtexport.__version__} for {board.name}.",
        f"Model: {graph.source} (SHA-256 {graph.sha256})",
        f"Rounding: {graph.rounding.value}",
    )
    options = Options(
        module, workspace == "caller", system_lib, comment, level, board.placement.workspaces
    )
    artifact = assemble(simplified, planned, options, kernel_of)
    return Prepared(simplified, planned, artifact, result.channels, decisions)


def export(
    model: Path | str | Graph, *, board: Board | Path | str = "host",
    output: Path | str | None = None, emit: Emit | None = None, optimize: Optimize | None = None,
    workspace: Literal["static", "caller"] = "static", io: Io = "caller", pools: Pools = (),
    large_data: LargeData = "auto", rounding: str = "double", module_name: str | None = None,
    system_lib: bool = True, split: Split | None = None, llvm_options: Sequence[str] = (),
    llvm_timeout: float | None = None, keep_failed: Path | str | None = None,
    jobs: int | None = None, accelerators: Sequence[str] | None = None,
    progress: Progress | None = None, written: Written | None = None,
) -> Exported:
    """Exports a model for a board as a Model Library Format package.

    ``output`` defaults to ``<module>-<board>.tar`` in the current folder. ``pools``: memories for
    the workspace instead of the board's choice. ``large_data``: whether
    constants go where their distance from code doesn't count; "auto" asks the board's threshold.
    For objects, ``split`` says which kernels get one of their own (none, operator, auto);
    ``llvm_options`` are LLVM's own, beside the board's; ``llvm_timeout`` is how many seconds it may
    take for one object, ``jobs`` how many are made at once, and ``keep_failed`` the folder for the
    text of those on which LLVM fails. ``accelerators`` are the names of plugins that may take
    nodes instead of those that the board names. ``progress`` is told each step, ``written`` the
    bytes of the package so far and in all. Raises CrtExportError for anything that can't be
    exported; there is no half-written package.
    """
    say = progress or (lambda _: None)
    target_board = with_pools(resolve_board(board), pools)
    chosen: Emit = emit or target_board.backend
    level: Optimize = optimize or target_board.optimize
    compiler = _compiler(
        target_board, chosen, level, split, llvm_options, llvm_timeout, keep_failed, jobs
    )
    say("load")
    graph = model if isinstance(model, Graph) else load(model, rounding=rounding)
    prepared = prepare(
        graph, target_board, module_name=module_name, optimize=optimize, workspace=workspace,
        io=io, pools=pools, system_lib=system_lib, accelerators=accelerators, progress=progress,
        must_fit=True,
    )
    artifact = prepared.artifact
    check_budget(target_board, _usage(artifact, 0), _known_boards())
    say(f"generate {chosen}")
    sources, made = _emit(artifact, target_board, compiler, large_data)
    objects = {f"{module.name}.o": data for module, data in made.items()}
    foreign = _foreign(prepared.graph, target_board, {*sources, *objects})
    facts = [object_facts(name, data) for name, data in objects.items()]
    if objects:
        check_budget(target_board, _usage(artifact, _code_size(facts)), _known_boards())
    path = Path(output or f"{artifact.module}-{target_board.name}.tar")
    say("package")
    write_package(path, PackageContents(
        artifact=artifact, target=target_board.target, board=target_board.to_data(),
        info=_info(prepared, chosen, level, facts, foreign, compiler, tuple(made)),
        header=emit_header(artifact), graph_text=graph_text.dump(prepared.graph),
        sources=sources | foreign.sources, objects=objects | foreign.objects,
        runtime_headers=runtime_headers(), externals=prepared.graph.modules,
    ), written)
    return Exported(
        path, target_board.name, chosen, artifact, prepared.graph, prepared.plan,
        prepared.channels, prepared.decisions,
    )


def _foreign(graph: Graph, board: Board, taken: set[str]) -> ExternalFiles:
    """The files of the graph's modules, none of them called as one that is ``taken``."""
    ours = None
    if any(module.kind == "object" for module in graph.modules):
        from crtexport.backends.llvm_compile import empty_object  # noqa: PLC0415

        ours = read_abi(empty_object(board.target), board.name)
    files = external_files(graph.modules, ours)
    for name in (*files.sources, *files.objects):
        if name in taken:
            raise CrtExportError(
                "generated code has a file of this name", location=("modules", name),
                hint="rename the file",
            )
    return files


def _known_boards() -> Iterator[Board]:
    """Read when somebody looks: a broken board file must not stop exports for another."""
    yield from list_boards()


def _emit(
    artifact: Artifact, board: Board, compiler: Compiler | None, large_data: LargeData
) -> tuple[dict[str, str], dict[Module, Blob]]:
    """Sources and objects. Constants are an object, but for those that are C text."""
    large = is_large(artifact, board.target, large_data, board.large_data_threshold)
    linked = True
    sources: dict[str, str] = {}
    objects: dict[Module, Blob] = {}
    if compiler is None:
        from crtexport.backends.c_source import MAX_CONSTANTS, emit_c  # noqa: PLC0415

        linked = large or artifact.constants_size > MAX_CONSTANTS
        sources = emit_c(artifact, linked=linked)
    else:
        symbols = {constant.symbol for constant in artifact.reached_constants} if large else {}
        objects |= {
            module: reach_through_slots(data, symbols) if symbols else data
            for module, data in compiler.compile(artifact).items()
        }
    if linked:
        placement = Placement(
            large, table=compiler is None, slots=large and compiler is not None
        )
        constants = constants_object(artifact, board.target, placement)
        if constants is not None:
            objects[constants_module(artifact)] = constants
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
        board.target, optimize, split=split or "none",
        options=((f"board {board.name}: llvm_options", board.llvm_options),
                 ("--llvm-option", options)),
        timeout=llvm_compile.TIMEOUT if timeout is None else timeout,
        keep_failed=None if keep_failed is None else Path(keep_failed), jobs=jobs,
    )


def _code_size(objects: Sequence[ObjectFacts]) -> int:
    return sum(
        size for facts in objects for section, size in facts.sections.items() if ".text" in section
    )


def _room(graph: Graph, board: Board, io: Io, pools: Pools) -> tuple[int | None, ...]:
    """The bytes that the workspace may take of each of its memories."""
    given = sum(graph.type(t).nbytes for t in (*graph.inputs, *graph.outputs))
    kept = sum(graph.type(t).nbytes for t in graph.variables)
    return room(board, Usage(workspace=kept, io=given if io == "caller" else 0), pools)


def _usage(artifact: Artifact, code: int) -> Usage:
    return Usage(
        code=code, constants=artifact.constants_size,
        spilled=() if artifact.workspace_caller else tuple(
            (pool.memory, pool.size) for pool in artifact.spilled
        ),
        workspace=(
            0 if artifact.workspace_caller else artifact.workspace_size + artifact.state_size
        ),
        io=0 if artifact.io_in_workspace else sum(
            i.type.nbytes for i in (*artifact.inputs, *artifact.outputs)
        ),
    )


def _info(
    prepared: Prepared, emit: Emit, optimize: Optimize, objects: Sequence[ObjectFacts],
    foreign: ExternalFiles, compiler: Compiler | None, modules: tuple[Module, ...],
) -> PackageInfo:
    graph = prepared.graph
    tools = {"crtexport": crtexport.__version__}
    if compiler:
        tools["llvm"] = compiler.version()
    return PackageInfo(
        emit=emit, undefined=_undefined(emit, objects, foreign, prepared.artifact),
        optimize=optimize, rounding=graph.rounding.value, source=graph.source,
        source_sha256=graph.sha256,
        plan=plan_data(graph, prepared.plan), tools=tools,
        llvm_options=compiler.options if compiler else (), modules=modules,
        channels=tuple(asdict(layer) for layer in prepared.channels),
        decisions=tuple(asdict(decision) for decision in prepared.decisions),
    )


def _undefined(
    emit: Emit, objects: Sequence[ObjectFacts], foreign: ExternalFiles, artifact: Artifact
) -> tuple[str, ...]:
    """What the code leaves to the firmware: exactly, for objects; at most, for C sources. What
    modules of others need besides is theirs to know."""
    facts = [object_facts(name, blob) for name, blob in foreign.objects.items()]
    theirs = {symbol for fact in facts for symbol in fact.undefined}
    theirs -= {symbol for fact in facts for symbol in fact.defined}
    announced = {*theirs, *needed_symbols(artifact)}
    if emit == "c":
        return tuple(sorted({*UNDEFINED_ALLOWED, *announced}))
    defined = {symbol for facts in objects for symbol in (*facts.defined, *facts.hidden)}
    needed = {symbol for facts in objects for symbol in facts.undefined} - defined
    strange = sorted(needed - announced - set(UNDEFINED_ALLOWED))
    if strange:
        raise CrtExportError(
            f"the generated code needs functions that firmware may not have: {', '.join(strange)}",
            hint="please report this with the model and the board",
        )
    return tuple(sorted(needed | theirs))


def runtime_headers() -> dict[str, bytes]:
    """The runtime headers that go into every package, by path below ``runtime/include``."""
    root = templates_dir() / "runtime" / "include"
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*.h"))
    }


def stage(
    model: Path | str | Graph, stage: Stage, *, board: Board | Path | str = "host",
    rounding: str = "double", io: Io = "caller", accelerators: Sequence[str] | None = None,
) -> str:
    """The text of one stage of the way from model to code, for people to read."""
    target_board = resolve_board(board)
    graph = model if isinstance(model, Graph) else load(model, rounding=rounding)
    prepared = prepare(graph, target_board, io=io, accelerators=accelerators)
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
            from crtexport.backends.c_source import emit_c  # noqa: PLC0415

            return "\n".join(emit_c(prepared.artifact).values())
        case "llvm":
            from crtexport.backends.llvm_module import emit_llvm  # noqa: PLC0415

            modules = emit_llvm(prepared.artifact, target_board.target, target_board.optimize)
            return "\n".join(modules.values())
