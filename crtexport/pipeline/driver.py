"""The whole story on one page: load, simplify, plan, lower, emit, package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from msgspec.structs import replace

from crtexport import passes
from crtexport.accelerators import offload
from crtexport.artifact.abi import check_arguments
from crtexport.artifact.assemble import ModuleOptions, Planned, assemble_package
from crtexport.artifact.calls import LINE, Proof
from crtexport.artifact.constant_dedup import computed, least_bytes
from crtexport.artifact.model import Artifact
from crtexport.artifact.symbols import sanitize_module
from crtexport.firmware import ethos_u
from crtexport.firmware.board import Board, Usage, check_budget, list_boards, user_files
from crtexport.firmware.budget import check_pools, check_tensors, excess, room, spare, with_pools
from crtexport.importers.files import data_files
from crtexport.importers.formats import NO_CHOICES, InputChoices
from crtexport.ir import text as graph_text
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.verify import verify
from crtexport.kir import text as kernel_text
from crtexport.lowering import text as lowered_text
from crtexport.lowering.registry import Context
from crtexport.lowering.verifier import verify as verify_lowered
from crtexport.passes.pack_weights import pack_weights
from crtexport.pipeline.codegen import Generator, resolve_board
from crtexport.pipeline.layouts import LayOut, Surroundings, laid_out
from crtexport.pipeline.options import (
    DEFAULTS,
    Emit,
    ExportChanges,
    ExportOptions,
    Io,
    Optimize,
    Owner,
    Pools,
    Weights,
)
from crtexport.pipeline.result import (
    Exported,
    Prepared,
    check_name,
    default_name,
    usage_beside,
    usage_of,
)
from crtexport.plan import check as plan_check
from crtexport.plan import text as plan_text
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.schedules.common.unroll import vectorizes
from crtexport.schedules.select.choose import Choose, Costs, by_default
from crtexport.schedules.select.lower import Lowerer
from crtexport.schedules.select.share_policy import weighing
from crtexport.schedules.variants import unpacks_free
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import Level
from crtexport.support.outputs.claims import Claims
from crtexport.support.target import Target
from crtexport.version import __version__

if TYPE_CHECKING:
    from crtexport.pipeline.package_contents import PackageBuilder
    from crtexport.schedules.select.tuning_records import ByRecord

__all__ = [
    "STAGES", "Emit", "ExportOptions", "Exported", "InputChoices", "Io", "Model", "Optimize",
    "Owner", "Pools", "Prepared", "Progress", "Stage", "Weights", "export", "load", "prepare",
    "prepare_package", "resolve_board", "stage",
]

_CLOSER = 8
"""Bytes at a multiple of which constants begin where code counts most."""

Stage = Literal["graph", "lowered", "plan", "picture", "kernels", "c", "llvm"]
Progress = Callable[[str], None]
Counted = Callable[[int, int], None]
"""Told how many bytes of the package are written, and of how many."""

Model = Path | str | Graph

STAGES: tuple[Stage, ...] = (
    "graph", "lowered", "plan", "picture", "kernels", "c", "llvm",
)


def load(
    path: Path | str, *, numerics: str | None = None, accelerators: Sequence[str] | None = None,
    board: Board | Path | str = "host", allow_outside: bool = False,
    choices: InputChoices = NO_CHOICES,
) -> Graph:
    """Returns the network in a model.json, .tflite or .onnx file; the format is detected by its
    content.

    If ``accelerators`` contains an Ethos-U ("ethos-u": that of ``board``), Vela compiles it first.
    Data files of a model.json or ONNX file must be in its folder, unless ``allow_outside`` is set.
    ``choices`` fix what an ONNX file leaves open about its inputs. Raises CrtExportError for files
    that can't be read.
    """
    return ethos_u.load_for(
        Path(path), Numerics.of(numerics), accelerators, lambda: resolve_board(board),
        allow_outside=allow_outside, choices=choices,
    )


def prepare(
    graph: Graph, board: Board, options: ExportOptions = DEFAULTS, *,
    progress: Progress | None = None, must_fit: bool = False, choose: Choose | None = None,
    lay_out: LayOut = laid_out, **changes: Unpack[ExportChanges],
) -> Prepared:
    """Verifies, simplifies, lowers and plans; what the plan claims is proven before it is used.

    ``changes`` are fields of ``options``. ``must_fit`` refuses constants that are too large for the
    board before any work on them. ``choose`` picks the variants of kernels; by default the cost
    model does. ``lay_out`` decides how the network is computed.
    """
    verify(graph)
    return prepare_package(
        [graph], board, replace(options, **changes), progress=progress, must_fit=must_fit,
        choose=choose, lay_out=lay_out,
    )[0]


def prepare_package(
    graphs: Sequence[Graph], board: Board, options: ExportOptions = DEFAULTS, *,
    progress: Progress | None = None, must_fit: bool = False, choose: Choose | None = None,
    prove: Callable[[Proof], None] = lambda proof: proof(), lay_out: LayOut = laid_out,
) -> tuple[Prepared, ...]:
    """:func:`prepare` for models that share a package: what is equal is there once.

    All of ``graphs`` are valid. ``prove`` is given the proofs that plans and kernels are sound, and
    must make them before code is used. ``lay_out`` decides how each network is computed. Where the
    board's memory, or what the user allows, is too small for variants that take a multiple of the
    memory of others, these aren't used.
    """
    _check_inputs(options)

    def prepared(larger: bool) -> tuple[tuple[Prepared, ...], list[Proof]]:
        proofs: list[Proof] = []
        return _prepared(
            graphs, board, options, progress=progress, must_fit=must_fit, choose=choose,
            prove=proofs.append, lay_out=lay_out, larger=larger,
        ), proofs

    may_be_larger = options.ram is None and not options.pools
    found, proofs = prepared(may_be_larger)
    if may_be_larger and options.level(board.optimize) == "speed" and not board.hosted:
        artifacts = [one.artifact for one in found]
        usage = usage_of(artifacts, _most_code(artifacts, board.target), options.const_inputs)
        if excess(board, usage):
            found, proofs = prepared(larger=False)
    for proof in proofs:
        prove(proof)
    return found


def _most_code(artifacts: Sequence[Artifact], target: Target) -> int:
    """Returns bytes that are hardly less than the code of models."""
    cost_of = Costs(target).of
    kernels = {f.kernel for artifact in artifacts for f in artifact.own_functions}
    return 2 * sum(cost_of(kernel).code for kernel in kernels)


def _prepared(
    graphs: Sequence[Graph], board: Board, options: ExportOptions, *, progress: Progress | None,
    must_fit: bool, choose: Choose | None, prove: Callable[[Proof], None], lay_out: LayOut,
    larger: bool,
) -> tuple[Prepared, ...]:
    say, names = progress or (lambda _: None), _names(graphs, options)
    level = options.level(board.optimize)
    plugins = _plugins(board, options.accelerators)
    planned: list[Planned] = []
    looked_at = []
    for graph, name in zip(graphs, names, strict=True):
        say("simplify")
        result, module = passes.simplify(graph), sanitize_module(name)
        simplified, decisions = offload(result.graph, plugins, board.target, f"tvmgen_{module}")
        simplified = _packing(simplified, options.weights, board.target, level)
        facts = result.channels, decisions
        check_tensors(board, computed(simplified), must_fit=must_fit)
        if must_fit:
            check_budget(board, Usage(constants=least_bytes(simplified)), _known_boards())
        lower = Lowerer(board.target, level, choose, larger=larger)
        others = (*(model.graph for model in planned), *graphs[len(planned) + 1 :])
        pools_before = [model.plan.pools for model in planned if options.workspace == "static"]
        say("plan memory")
        beside = usage_beside(
            (simplified, *others), options.io, options.const_inputs,
            options.feed or options.stream,
        )
        around = Surroundings(
            board, options, lower, room(board, beside, options.pools, pools_before),
            spare(board, beside, options.pools, pools_before),
        )
        laid = lay_out(simplified, around)
        lowered, made = laid.lowered, laid.plan
        check_pools(board, (*pools_before, made.pools), options.pools)
        prove(partial(verify_lowered, lowered))
        prove(partial(plan_check.check, lowered.graph, made, ReplayProof(lowered)))
        planned.append(Planned(
            lowered, made,
            ModuleOptions(
                module, options.workspace == "caller", options.system_lib, _comment(graph, board),
                board.placement.workspaces, options.workspace == "shared",
                _alignment(board.target, level),
            ),
            weighing(board.target, level, lower.costs),
        ))
        looked_at.append((*facts, laid.whole))
    say("lower")
    return tuple(
        Prepared(model.lowered, model.plan, artifact, *facts)
        for model, artifact, facts in zip(
            planned, assemble_package(planned, prove), looked_at, strict=True
        )
    )


def _alignment(target: Target, level: Level) -> int:
    """Returns the bytes at a multiple of which constants begin: less where code counts more than
    the lines that are read from flash, and no vectors are loaded."""
    scalar = not vectorizes(target)
    return _CLOSER if scalar and level in ("size", "compact") else LINE


def _names(graphs: Sequence[Graph], options: ExportOptions) -> Sequence[str]:
    names = options.module_names
    if names is None:
        return [graph.name for graph in graphs]
    if len(names) != len(graphs):
        raise CrtExportError(
            f"there are {len(graphs)} models, but {len(names)} module names",
            location="--module-name", hint="give one for each model, in their order, or none",
        )
    return names


def _plugins(board: Board, accelerators: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the plugins that are named; None: those of the board."""
    return ethos_u.plugins(board.accelerators if accelerators is None else accelerators)


def _packing(graph: Graph, weights: Weights, target: Target, level: Level) -> Graph:
    """Returns the graph with those weights packed that are to be."""
    if weights == "unpacked":
        return graph
    return pack_weights(graph, lambda whole, node: (
        weights == "packed" or unpacks_free(Context(whole, node), target, level)
    ))


def _check_inputs(options: ExportOptions) -> None:
    if (options.feed or options.stream) and options.io == "workspace":
        raise CrtExportError(
            "an input that is given row by row doesn't lie in the workspace",
            location=("--stream" if options.stream else "--feed", "--io workspace"),
            hint="leave one of them out",
        )
    if options.stream and options.workspace == "shared":
        raise CrtExportError(
            "rows that are kept from one result to the next can't lie in memory that other models"
            " use in between",
            location=("--stream", "--workspace shared"), hint="leave one of them out",
        )
    if options.const_inputs and options.io == "workspace":
        raise CrtExportError(
            "inputs in the workspace are written before each run: they can't stay in flash",
            location=("--const-inputs", "--io workspace"), hint="leave one of them out",
        )


def _comment(graph: Graph, board: Board) -> tuple[str, ...]:
    """Returns the first comment of every generated file."""
    return (
        f"Generated by crtexport {__version__} for {board.name}.",
        f"Model: {graph.source} (SHA-256 {graph.sha256})",
        f"Numerics: {graph.numerics.value}",
    )


def export(
    model: Model | Sequence[Model], options: ExportOptions = DEFAULTS, *,
    board: Board | Path | str = "host", output: Path | str | None = None,
    choose: Choose | None = None, claims: Claims | None = None, progress: Progress | None = None,
    written: Counted | None = None, compiled: Counted | None = None,
    **changes: Unpack[ExportChanges],
) -> Exported:
    """Exports a model, or several together, for a board as a Model Library Format package.

    Several models share a function registry, and equal kernels and constants. ``output`` is the
    package to write, by default ``<modules>-<board>.tar`` in the current folder. ``options`` are
    described in :class:`.options.ExportOptions`; ``changes`` are single fields of them.

    For programs that embed crtexport: ``choose`` selects kernels if there are no measurements,
    ``progress`` is called with each step, ``written`` and ``compiled`` with the number of bytes or
    objects that are done and their total, and ``claims`` lists other files that the caller will
    write. Raises CrtExportError, also if an output is a file that is read.
    """
    options = replace(options, **changes)
    say = progress or (lambda _: None)
    claims = _claimed(claims or Claims(), output, model, board, options.tuning)
    target_board = with_pools(resolve_board(board), options.pools)
    generator = Generator(target_board, options)
    tuned = generator.tuned(options.tuning)
    say("load")
    graphs, target_board = _read(model, options, target_board)
    _check_output(output, claims, graphs)
    generator.expect(sum(len(graph.nodes) for graph in graphs))
    proofs: list[Proof] = []
    prepared = prepare_package(
        graphs, target_board, options, must_fit=True, progress=progress,
        choose=tuned or choose or generator.default_choice(), prove=proofs.append,
    )
    artifacts = _artifacts(prepared, options.system_lib)
    usage = usage_of(artifacts, 0, options.const_inputs)
    check_budget(target_board, usage, _known_boards())
    say(f"generate {generator.emit}")
    packing = _packed(prepared, graphs, target_board, generator, tuned, proofs, options, compiled)
    usage = replace(usage, code=packing.code_size)
    check_budget(target_board, usage, _known_boards(), generator.optimize)
    path = Path(output or default_name(artifacts, target_board.name))
    if output is None:
        claims.file("the package", path)
    say("package")
    packing.write(path, written)
    return Exported(
        path, target_board.name, generator.emit, prepared, tuple(graphs), packing.summaries, usage,
        target_board,
    )


def _packed(
    prepared: Sequence[Prepared], read: Sequence[Graph], board: Board, generator: Generator,
    tuned: ByRecord | None, proofs: Sequence[Proof], options: ExportOptions,
    compiled: Counted | None,
) -> PackageBuilder:
    """Returns the contents of a package; the proofs are made while LLVM works."""
    artifacts = [one.artifact for one in prepared]
    with generator.started(artifacts, options.large_data, compiled) as finish:
        for proof in proofs:
            proof()
        # While LLVM works: importing it takes as long as the code of a small network.
        from crtexport.pipeline.package_contents import PackageBuilder  # noqa: PLC0415

        packing = PackageBuilder(prepared, read, board, generator, tuned, options)
        packing.add(finish(packing.look), device_bundle=options.device_bundle)
    return packing


def _claimed(
    claims: Claims, output: Path | str | None, model: Model | Sequence[Model],
    board: Board | Path | str, tuning: Path | str | None,
) -> Claims:
    """Returns ``claims`` with the package and the files that were named to be read."""
    models = [model] if isinstance(model, str | Path | Graph) else model
    claims.file("-o", None if output is None else Path(output))
    claims.reads(*(Path(one) for one in models if not isinstance(one, Graph)))
    claims.reads(*user_files(board), None if tuning is None else Path(tuning))
    return claims


def _check_output(output: Path | str | None, claims: Claims, graphs: Sequence[Graph]) -> None:
    claims.reads(*(file for graph in graphs for file in data_files(graph)))
    if output is not None:
        check_name(Path(output))


def _artifacts(prepared: Sequence[Prepared], registered: bool) -> list[Artifact]:
    """Returns the artifacts of models. Raises CrtExportError for one that is ``registered`` and has
    more arguments than the function registry can pass."""
    artifacts = [one.artifact for one in prepared]
    for artifact in artifacts if registered else ():
        check_arguments(artifact)
    return artifacts


def _read(
    model: Model | Sequence[Model], options: ExportOptions, board: Board
) -> tuple[list[Graph], Board]:
    """Returns the networks, each verified, and the board as they need it."""
    models = [model] if isinstance(model, str | Path | Graph) else list(model)
    if not models:
        raise CrtExportError("there is no model to export")
    read = partial(
        load, numerics=options.numerics, accelerators=options.accelerators, board=board,
        choices=options.choices,
    )
    graphs = [_verified(one) if isinstance(one, Graph) else read(one) for one in models]
    return graphs, ethos_u.for_networks(
        board, graphs, options.accelerators, fixed=bool(options.pools)
    )


def _verified(graph: Graph) -> Graph:
    verify(graph)
    return graph


def _known_boards() -> Iterator[Board]:
    """Read when they are used: a broken board file must not stop exports for another."""
    yield from list_boards()


def sources_of_others(
    model: Path | str, *, board: Board | Path | str = "host",
    accelerators: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Returns the names of C files that an export would bring along beside generated code: those of
    the model's modules and of accelerators. Raises CrtExportError as an export does."""
    target_board = resolve_board(board)
    graph = load(model, accelerators=accelerators, board=target_board)
    plugins = _plugins(target_board, accelerators)
    if plugins:
        prefix = f"tvmgen_{sanitize_module(graph.name)}"
        graph, _ = offload(passes.simplify(graph).graph, plugins, target_board.target, prefix)
    return tuple(
        file.name for module in graph.modules if module.kind == "c-source" for file in module.files
    ) + tuple(
        f"{module.name}'s decoder" for module in graph.modules if module.kind == "device-image"
    )


def stage(
    model: Path | str | Graph, stage: Stage, *, board: Board | Path | str = "host",
    numerics: str | None = None, io: Io = "caller", accelerators: Sequence[str] | None = None,
    choices: InputChoices = NO_CHOICES, weights: Weights = "auto",
    optimize: Optimize | None = None, tuning: Path | str | None = None,
) -> str:
    """Returns a stage of a model's export as text: "graph", "lowered", "plan", "picture" (SVG),
    "kernels", "c" or "llvm". The other arguments are as for :func:`crtexport.export`."""
    options = ExportOptions(
        numerics=numerics, io=io, accelerators=accelerators, choices=choices, weights=weights,
        optimize=optimize, tuning=tuning,
    )
    (graph,), target_board = _read(model, options, resolve_board(board))
    emit: Emit = "c" if stage == "c" else "llvm" if stage == "llvm" else target_board.backend
    level = options.level(target_board.optimize)
    made = None if tuning is None else Generator(target_board, replace(options, emit=emit))
    tuned = made and made.tuned(tuning)
    choose = tuned or by_default(target_board.target, level, emit)
    prepared = prepare(graph, target_board, options, choose=choose)
    match stage:
        case "graph":
            return graph_text.dump(prepared.graph)
        case "lowered":
            return lowered_text.dump(prepared.lowered)
        case "plan":
            return plan_text.dump(prepared.graph, prepared.plan)
        case "picture":
            from crtexport.plan import svg  # noqa: PLC0415

            return svg.draw(prepared.graph, prepared.plan)
        case "kernels":
            return "\n\n".join(kernel_text.dump(f.kernel) for f in prepared.artifact.functions)
        case "c":
            generator = Generator(target_board, ExportOptions(emit="c", optimize=optimize))
            with generator.started((prepared.artifact,)) as finish:
                sources, _ = finish(lambda *_: None)
            return "\n".join(sources.values())
        case "llvm":
            from crtexport.backends.llvm.module import emit_llvm  # noqa: PLC0415

            modules = emit_llvm(prepared.artifact, target_board.target, level)
            return "\n".join(modules.values())
