"""The whole story on one page: load, simplify, plan, lower, emit, package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

import crtexport
from crtexport import passes, plan
from crtexport.accelerators import hand_over
from crtexport.artifact.abi import check_arguments
from crtexport.artifact.assemble import Options, Planned, assemble_package
from crtexport.artifact.calls import Proof
from crtexport.artifact.contents import computed, least_bytes
from crtexport.artifact.model import Artifact
from crtexport.artifact.symbols import sanitize_module
from crtexport.backends.constants import LargeData
from crtexport.backends.modules import Split
from crtexport.errors import CrtExportError
from crtexport.exported import (
    Emit,
    Exported,
    Prepared,
    check_name,
    default_name,
    usage_beside,
    usage_of,
)
from crtexport.firmware import npu
from crtexport.firmware.board import Board, Usage, check_budget, list_boards, user_files
from crtexport.firmware.budget import check_pools, check_tensors, room, with_pools
from crtexport.generation import Generator, Optimize, resolve_board
from crtexport.importers.files import data_files
from crtexport.ir import text as graph_text
from crtexport.ir.graph import Graph
from crtexport.ir.types import Rounding
from crtexport.ir.verify import verify
from crtexport.kernels import text as kernel_text
from crtexport.kernels.inplace import InPlaceFacts
from crtexport.kernels.proof import ReplayProof
from crtexport.kernels.step import RememberedSteps
from crtexport.outputs.claims import Claims
from crtexport.plan import check as plan_check
from crtexport.plan import text as plan_text
from crtexport.schedules import fusion
from crtexport.schedules.choice import Choose, Kernels, by_default
from crtexport.schedules.sharing import weighing

if TYPE_CHECKING:
    from crtexport.packing import Packing
    from crtexport.schedules.records import ByRecord

__all__ = [
    "STAGES", "Emit", "Exported", "Io", "Model", "Optimize", "Owner", "Pools", "Prepared",
    "Progress", "Stage", "export", "load", "prepare", "prepare_package", "resolve_board", "stage",
]

Io = Literal["caller", "workspace"]
Owner = Literal["static", "shared", "caller"]
"""Whose the workspace is: each model's own, one for all models of a package, or the caller's."""
Pools = Sequence[tuple[str, int]]
"""Memories for the workspace, fastest first, and how many bytes it may take of each."""
Stage = Literal["graph", "plan", "picture", "kernels", "c", "llvm"]
Progress = Callable[[str], None]
Written = Callable[[int, int], None]
"""Told how many bytes of the package are written, and of how many."""

Model = Path | str | Graph

STAGES: tuple[Stage, ...] = ("graph", "plan", "picture", "kernels", "c", "llvm")


def load(
    path: Path | str, *, rounding: str = "double", accelerators: Sequence[str] | None = None,
    board: Board | Path | str = "host", allow_outside: bool = False,
) -> Graph:
    """The network in a file (model.json or .tflite, told apart by content), verified; compiled by
    Vela where ``accelerators`` name an Ethos-U ("ethos-u": that of the board).

    A model.json's data files must lie in its folder, unless ``allow_outside``.
    """
    return npu.load_for(
        Path(path), Rounding(rounding), accelerators, lambda: resolve_board(board),
        allow_outside=allow_outside,
    )


def prepare(
    graph: Graph, board: Board, *, module_name: str | None = None,
    optimize: Optimize | None = None, workspace: Owner = "static",
    io: Io = "caller", pools: Pools = (), system_lib: bool = True,
    accelerators: Sequence[str] | None = None, progress: Progress | None = None,
    must_fit: bool = False, choose: Choose | None = None,
) -> Prepared:
    """Verifies, simplifies, plans and lowers; what the plan claims is proven before it is used.

    ``accelerators`` are the names of plugins that may take nodes; None: those of the board.
    ``must_fit`` refuses constants that are too large for the board before any work on them.
    ``choose`` picks the forms of kernels; by default the cost model does.
    """
    verify(graph)
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
    prove: Callable[[Proof], None] = lambda proof: proof(), const_inputs: bool = False,
) -> tuple[Prepared, ...]:
    """:func:`prepare` for models that share a package: what is equal is there once.

    All of ``graphs`` are valid. ``module_names``: one for each, in their order. ``prove`` is given
    the proofs that plans and kernels are sound, and must make them before code is used. With
    ``const_inputs`` the caller's inputs take no RAM.
    """
    _check_inputs(io, const_inputs)
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
        check_tensors(board, computed(simplified), must_fit=must_fit)
        if must_fit:
            check_budget(board, Usage(constants=least_bytes(simplified)), _known_boards())
        kernels = Kernels(board.target, level, choose)
        steps = RememberedSteps(kernels)
        others = (*(model.graph for model in planned), *graphs[len(planned) + 1 :])
        before = [model.plan.pools for model in planned] if workspace == "static" else []
        say("plan memory")
        left = room(board, usage_beside((simplified, *others), io, const_inputs), pools, before)
        may = InPlaceFacts(steps)
        simplified, made = fusion.smallest(simplified, board.target, level, partial(
            plan.plan, facts=may, io_in_workspace=io == "workspace", pools=left
        ))
        check_pools(board, (*before, made.pools), pools)
        prove(partial(plan_check.check, simplified, made, ReplayProof(steps)))
        options = Options(
            module, workspace == "caller", system_lib, _comment(graph, board),
            board.placement.workspaces, workspace == "shared",
        )
        planned.append(Planned(
            simplified, made, options, steps, weighing(board.target, level, kernels.costs)
        ))
    say("lower")
    return tuple(
        Prepared(model.graph, model.plan, artifact, *facts)
        for model, artifact, facts in zip(
            planned, assemble_package(planned, prove), looked_at, strict=True
        )
    )


def _check_inputs(io: Io, const_inputs: bool) -> None:
    if const_inputs and io == "workspace":
        raise CrtExportError(
            "inputs in the workspace are written before each run: they can't stay in flash",
            location=("--const-inputs", "--io workspace"), hint="leave one of them out",
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
    workspace: Owner = "static", io: Io = "caller", const_inputs: bool = False, pools: Pools = (),
    large_data: LargeData = "auto", rounding: str = "double",
    module_name: str | Sequence[str] | None = None, system_lib: bool = True,
    split: Split | None = None, llvm_options: Sequence[str] = (), jobs: int | None = None,
    llvm_timeout: float | None = None, keep_failed: Path | str | None = None,
    accelerators: Sequence[str] | None = None, device_bundle: bool = False,
    tuning: Path | str | None = None, choose: Choose | None = None, claims: Claims | None = None,
    progress: Progress | None = None, written: Written | None = None,
) -> Exported:
    """Exports a model, or several together, for a board as a Model Library Format package.

    Several models, each with a ``module_name`` if any is given, have one function registry, and
    what is equal in them is there once. ``output`` defaults to ``<modules>-<board>.tar`` in the
    current folder. ``const_inputs``: inputs stay in flash, where they are counted then.
    ``pools``: memories for the workspace instead of the board's choice.
    ``large_data``: whether constants may be any distance from code; "auto" asks the board. For
    objects, ``split`` says which kernels get one of their own (none, operator, auto);
    ``llvm_options`` are LLVM's own, beside the board's; ``llvm_timeout`` is how many seconds it may
    take for one object, ``jobs`` how many are made at once, ``keep_failed`` the folder for the text
    of those on which LLVM fails. ``accelerators``: who may take nodes instead of those that the
    board names. ``device_bundle`` adds bundles of devices' programs for clang-offload-bundler.
    ``tuning`` is a file of what was measured of kernels, which decides about their forms; else
    ``choose`` does. ``progress`` is told steps, ``written`` bytes; ``claims`` has what the caller
    will write besides. Raises CrtExportError, also where an output is a file that is read.
    """
    say = progress or (lambda _: None)
    claims = _claimed(claims or Claims(), output, model, board, tuning)
    target_board = with_pools(resolve_board(board), pools)
    generator = Generator(
        target_board, emit, optimize, split=split, llvm_options=llvm_options, jobs=jobs,
        timeout=llvm_timeout, keep_failed=keep_failed,
    )
    tuned = generator.tuned(tuning)
    say("load")
    graphs, target_board = _read(model, rounding, accelerators, target_board, pools)
    _check_output(output, claims, graphs)
    generator.expect(sum(len(graph.nodes) for graph in graphs))
    proofs: list[Proof] = []
    prepared = prepare_package(
        graphs, target_board, module_names=_listed(module_name), optimize=optimize,
        workspace=workspace, io=io, pools=pools, system_lib=system_lib, must_fit=True,
        accelerators=accelerators, progress=progress, const_inputs=const_inputs,
        choose=tuned or choose or generator.default_choice(), prove=proofs.append,
    )
    artifacts = _artifacts(prepared, system_lib)
    check_budget(target_board, usage := usage_of(artifacts, 0, const_inputs), _known_boards())
    say(f"generate {generator.emit}")
    packing = _packed(
        prepared, target_board, generator, tuned, proofs, large_data, device_bundle=device_bundle
    )
    check_budget(target_board, replace(usage, code=packing.code_size), _known_boards())
    path = Path(output or default_name(artifacts, target_board.name))
    if output is None:
        claims.file("the package", path)
    say("package")
    packing.write(path, written)
    return Exported(path, target_board.name, generator.emit, prepared, tuple(graphs))


def _packed(
    prepared: Sequence[Prepared], board: Board, generator: Generator, tuned: ByRecord | None,
    proofs: Sequence[Proof], large_data: LargeData, *, device_bundle: bool,
) -> Packing:
    """The contents of a package; the proofs are made while LLVM works."""
    with generator.started([one.artifact for one in prepared], large_data) as finish:
        for proof in proofs:
            proof()
        # While LLVM works: importing it takes as long as the code of a small network.
        from crtexport.packing import Packing  # noqa: PLC0415

        packing = Packing(prepared, board, generator, tuned)
        packing.add(finish(packing.look), device_bundle=device_bundle)
    return packing


def _claimed(
    claims: Claims, output: Path | str | None, model: Model | Sequence[Model],
    board: Board | Path | str, tuning: Path | str | None,
) -> Claims:
    """``claims`` with the package and the files that were named to be read."""
    models = [model] if isinstance(model, str | Path | Graph) else model
    claims.file("-o", None if output is None else Path(output))
    claims.reads(*(Path(one) for one in models if not isinstance(one, Graph)))
    claims.reads(*user_files(board), None if tuning is None else Path(tuning))
    return claims


def _check_output(output: Path | str | None, claims: Claims, graphs: Sequence[Graph]) -> None:
    claims.reads(*(file for graph in graphs for file in data_files(graph)))
    if output is not None:
        check_name(Path(output))


def _listed(names: str | Sequence[str] | None) -> Sequence[str] | None:
    return [names] if isinstance(names, str) else names


def _artifacts(prepared: Sequence[Prepared], registered: bool) -> list[Artifact]:
    """Those that fit into a function registry, where they are registered."""
    artifacts = [one.artifact for one in prepared]
    for artifact in artifacts if registered else ():
        check_arguments(artifact)
    return artifacts


def _read(
    model: Model | Sequence[Model], rounding: str, accelerators: Sequence[str] | None,
    board: Board, pools: Pools = (),
) -> tuple[list[Graph], Board]:
    """The networks, each verified, and the board as they need it."""
    models = [model] if isinstance(model, str | Path | Graph) else list(model)
    if not models:
        raise CrtExportError("there is no model to export")
    read = partial(load, rounding=rounding, accelerators=accelerators, board=board)
    graphs = [_verified(one) if isinstance(one, Graph) else read(one) for one in models]
    return graphs, npu.for_networks(board, graphs, accelerators, fixed=bool(pools))


def _verified(graph: Graph) -> Graph:
    verify(graph)
    return graph


def _known_boards() -> Iterator[Board]:
    """Read when somebody looks: a broken board file must not stop exports for another."""
    yield from list_boards()


def sources_of_others(
    model: Path | str, *, board: Board | Path | str = "host",
    accelerators: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Returns the names of C files that an export would bring along beside generated code: those of
    the model's modules and of accelerators. Raises CrtExportError as an export does."""
    target_board = resolve_board(board)
    graph = load(model, accelerators=accelerators, board=target_board)
    plugins = npu.plugins(target_board.accelerators if accelerators is None else accelerators)
    if plugins:
        prefix = f"tvmgen_{sanitize_module(graph.name)}"
        graph, _ = hand_over(passes.simplify(graph).graph, plugins, target_board.target, prefix)
    return tuple(
        file.name for module in graph.modules if module.kind == "c-source" for file in module.files
    ) + tuple(
        f"{module.name}'s decoder" for module in graph.modules if module.kind == "device-image"
    )


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
            with Generator(target_board, "c").started((prepared.artifact,)) as finish:
                sources, _ = finish(lambda *_: None)
            return "\n".join(sources.values())
        case "llvm":
            from crtexport.backends.llvm_module import emit_llvm  # noqa: PLC0415

            modules = emit_llvm(prepared.artifact, target_board.target, target_board.optimize)
            return "\n".join(modules.values())
