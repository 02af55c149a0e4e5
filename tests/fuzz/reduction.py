"""Smaller networks that show the same as a drawn one, and how they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from msgspec.structs import replace as changed

from crtexport.importers.crtjson import save
from crtexport.ir import ops
from crtexport.ir.graph import Graph
from crtexport.kir.to_python import InterpreterError
from crtexport.kir.verifier import KernelError
from crtexport.passes.drop_dead import drop_dead
from crtexport.support.errors import CrtExportError
from tests.fuzz.checking import Checker, Outcome
from tests.fuzz.growing import Array, Grown
from tests.fuzz.meaning import Values, compute

MOST_TRIES = 60


def reduced(outcome: Outcome) -> Outcome:
    """An outcome of the same finding for a network with fewer nodes, as far as that goes."""
    tries = 0
    with Checker(everywhere=True) as checker:
        smaller = True
        while smaller and tries < MOST_TRIES:
            smaller = False
            for grown in _parts(outcome.example.grown):
                tries += 1
                (found,) = checker.check([replace(outcome.example, grown=grown)])
                if found.finding == outcome.finding:
                    outcome, smaller = found, True
                    break
                if tries >= MOST_TRIES:
                    break
    return outcome


def _parts(grown: Grown) -> Iterator[Grown]:
    """Networks with one output, one run, or a tensor less that is computed: simpler first."""
    graph = grown.graph
    if drop_dead(graph) != graph:
        yield _without_the_dead(grown, graph)
    if len(graph.outputs) > 1:
        for output in graph.outputs:
            yield _without_the_dead(grown, changed(graph, outputs=(output,)))
    if len(grown.runs) > 1 and not graph.variables:
        for run in grown.runs:
            yield Grown(graph, (run,))
    for number in reversed(range(len(graph.nodes))):
        before = [t for t in graph.nodes[number].inputs if t is not None]
        made = [t for t in before if any(t in node.outputs for node in graph.nodes)]
        if made:
            given = _given(grown, made)
            if given is not None:
                yield given
        ends = [t for t in before if graph.constant(t) is None and t not in graph.variables]
        if ends and not isinstance(graph.nodes[number].op, ops.AssignVariable):
            nodes = (*graph.nodes[:number], *graph.nodes[number + 1 :])
            lost = set(graph.nodes[number].outputs)
            if any(lost.intersection(node.inputs) for node in nodes):
                continue
            outputs = tuple(t for t in graph.outputs if t not in lost) or (ends[0],)
            yield _without_the_dead(grown, changed(graph, nodes=nodes, outputs=outputs))


def _given(grown: Grown, tensors: list[int]) -> Grown | None:
    """With tensors as inputs that are computed otherwise."""
    graph = drop_dead(grown.graph)
    if graph != grown.graph or any(node.graphs for node in graph.nodes) or graph.variables:
        return None
    runs = []
    for run in grown.runs:
        values: Values = dict(zip(graph.inputs, run, strict=True))
        for number, tensor in enumerate(graph.tensors):
            if tensor.constant is not None:
                values[number] = tensor.constant.array(tensor.type)
        try:
            for node in graph.nodes:
                compute(graph, node, values)
        except (CrtExportError, KernelError, InterpreterError):
            return None  # which may be what is to be made smaller
        runs.append((*run, *(values[t] for t in dict.fromkeys(tensors))))
    nodes = tuple(node for node in graph.nodes if not set(node.outputs).intersection(tensors))
    lost = {t for node in graph.nodes if node not in nodes for t in node.outputs} - set(tensors)
    if any(lost.intersection(node.inputs) for node in nodes) or lost.intersection(graph.outputs):
        return None
    inputs = (*graph.inputs, *dict.fromkeys(tensors))
    return _without_the_dead(
        Grown(graph, tuple(runs)), changed(graph, nodes=nodes, inputs=inputs)
    )


def _without_the_dead(grown: Grown, graph: Graph) -> Grown:
    """``graph`` without what no output depends on, inputs among it."""
    smaller = drop_dead(graph)
    read = {t for node in smaller.nodes for t in node.inputs} | set(smaller.outputs)
    kept_inputs = [n for n, t in enumerate(smaller.inputs) if t in read]
    return Grown(
        changed(smaller, inputs=tuple(smaller.inputs[n] for n in kept_inputs)),
        tuple(tuple(run[n] for n in kept_inputs) for run in grown.runs),
    )


def kept(outcome: Outcome, folder: Path) -> Path:
    """A folder with the network as model.json, its inputs and what was found."""
    place = folder / f"network-{outcome.example.seed}"
    place.mkdir(parents=True, exist_ok=True)
    grown = outcome.example.grown
    save(grown.graph, place / "model.json")
    inputs: dict[str, Array] = {
        f"run{number}_input{position}": array
        for number, run in enumerate(grown.runs) for position, array in enumerate(run)
    }
    np.savez(place / "inputs.npz", **inputs)
    text = f"{outcome.finding}\n{outcome.example.options}\n\n{outcome.detail}\n"
    (place / "finding.txt").write_text(text, encoding="utf-8")
    return place
