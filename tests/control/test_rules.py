"""Rules of IF and WHILE in graphs, files and plans, and what is left of them after passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.importers.crtjson import save
from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Add, If, Less, Mul, Relu, Reshape, Tanh, While
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.verify import MAX_DEPTH, verify
from crtexport.passes import run
from crtexport.plan import Plan, plan
from crtexport.plan.check import PlanError, check
from crtexport.plan.kernel_proof import ReplayProof
from crtexport.plan.model import Placement, Space
from crtexport.simulation.tflite_form import TfliteForm
from crtexport.simulation.tflite_parts import FileOperator
from crtexport.simulation.tflite_writer import _File
from crtexport.support.errors import CrtExportError
from tests.control.networks import NETWORKS, collected, fibonacci, remembering
from tests.lowered import plain
from tests.plan.graphs import GraphBuilder

F32, I32, BOOL = DType.FLOAT32, DType.INT32, DType.BOOL


def unary(op: Relu | Tanh, *shape: int) -> Graph:
    b = GraphBuilder()
    return b.inner(b.node(op, b.input(*shape)))


def choice(condition: int | None = None, depth: int = 0) -> Graph:
    """y = relu(x) if c else tanh(x), ``depth`` more times inside; a constant condition is given."""
    first = unary(Relu(), 3)
    for _ in range(depth):
        b = GraphBuilder()
        x = b.input(3)
        truth = b.constant(np.array([True]))
        first = b.inner(*b.control(If(), truth, x, graphs=(first, unary(Tanh(), 3))))
    b = GraphBuilder()
    x = b.input(3)
    truth = b.input(1, dtype=BOOL) if condition is None else b.constant(np.array([bool(condition)]))
    return Graph(
        "net", *_with(b, b.control(If(), truth, x, graphs=(first, unary(Tanh(), 3))))
    )


def _with(b: GraphBuilder, outputs: list[int]) -> Any:
    return tuple(b.tensors), tuple(b.nodes), tuple(b.inputs), tuple(outputs)


def changed(graph: Graph, **fields: Any) -> Graph:
    """``graph`` with its first node changed."""
    return graph.with_nodes((replace(graph.nodes[0], **fields), *graph.nodes[1:]))


def inner(graph: Graph, number: int, other: Graph) -> Graph:
    graphs = list(graph.nodes[0].graphs)
    graphs[number] = other
    return changed(graph, graphs=tuple(graphs))


def own_variable() -> Graph:
    graph = unary(Relu(), 3)
    kept = Tensor("own", TensorType(F32, (3,)), variable=Variable())
    return inner(choice(), 0, replace(graph, tensors=(*graph.tensors, kept)))


def other_start() -> Graph:
    graph = remembering().graph
    node = next(n for n in graph.nodes if n.graphs)
    first = node.graphs[0]
    value = Variable(ConstantRef.of(np.ones(3, np.float32)))
    tensors = tuple(
        replace(t, variable=value) if t.variable is not None else t for t in first.tensors
    )
    graphs = (replace(first, tensors=tensors), node.graphs[1])
    return graph.with_nodes(
        tuple(replace(n, graphs=graphs) if n is node else n for n in graph.nodes)
    )


def loop(body_shape: int = 3, results: int = 1) -> Graph:
    body, condition = GraphBuilder(), GraphBuilder()
    made = body.node(Relu(), body.input(body_shape))
    x = condition.input(3)
    truth = condition.node(Less(), x, x)
    b = GraphBuilder()
    given = b.input(3)
    graphs = (condition.inner(*[truth] * results), body.inner(made))
    b.tensors.append(Tensor("y", TensorType(F32, (3,))))
    b.nodes.append(Node(While(), (given,), (1,), origin="the loop", graphs=graphs))
    return Graph("net", *_with(b, [1]))


WRONG: dict[str, tuple[Callable[[], Graph], str]] = {
    "no graphs": (lambda: changed(choice(), graphs=()), r"\(If\): expected 2 graphs, found 0"),
    "graphs of another operator": (
        lambda: changed(choice(), op=Relu()), "the operator runs no graphs of its own"
    ),
    "no condition": (
        lambda: changed(choice(), inputs=(0, 0)), r"condition must be one truth value.*float32\[3\]"
    ),
    "too few inputs": (
        lambda: changed(choice(), inputs=(1,)), "graph 0 takes 1 inputs, but is given 0"
    ),
    "other shape": (
        lambda: inner(choice(), 1, unary(Tanh(), 4)), r"input 0 of graph 1 is float32\[4\], not"
    ),
    "other results": (
        lambda: inner(choice(), 1, replace(unary(Tanh(), 3), outputs=())),
        r"its graphs give float32\[3\] and nothing",
    ),
    "damaged inside": (
        lambda: inner(choice(), 1, replace(unary(Tanh(), 3), outputs=(7,))),
        r"\(If\) → graph 1 → graph output 0: there is no tensor 7",
    ),
    "a variable of its own": (own_variable, "'own' is a variable of its own"),
    "another initial value": (other_start, "knows another initial value of a variable"),
    "other numerics": (
        lambda: inner(choice(), 1, replace(unary(Tanh(), 3), numerics=Numerics.LITERT)),
        "must have the numerics of that",
    ),
    "too deep": (
        lambda: choice(depth=MAX_DEPTH), f"graphs are nested more than {MAX_DEPTH} deep"
    ),
    "growing": (lambda: loop(body_shape=4), r"input 0 of graph 1 is float32\[4\], not float32"),
    "two conditions": (lambda: loop(results=2), "of its condition gives 2 values, not one"),
    "three conditions in one": (loop, r"condition must be one truth value, found bool\[3\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(CrtExportError, match=message):
        verify(make())


def test_graphs_may_be_nested_as_deep_as_is_said() -> None:
    verify(choice(depth=MAX_DEPTH - 1))


# ---- files


def branches(file: _File) -> tuple[Any, Any]:
    """The operator IF and its fields."""
    position = next(
        i for i, operator in enumerate(file._parts[0].operators) if operator.form.code == "IF"
    )
    return file._parts[0].operators, position


def with_fields(file: _File, code: str = "IfOptions", **fields: int) -> None:
    operators, position = branches(file)
    form = operators[position].form
    form = TfliteForm("IF", code, {**form.fields, **fields} if code == "IfOptions" else {})
    operators[position] = replace(operators[position], form=form)


MISTAKES: dict[str, tuple[Callable[[_File], None], str]] = {
    "itself": (
        lambda f: with_fields(f, ThenSubgraphIndex=0),
        r"operator 0 \(IF\) → subgraph 0: the subgraph runs itself",
    ),
    "nothing": (lambda f: with_fields(f, ElseSubgraphIndex=9), "there is no subgraph 9"),
    "negative": (lambda f: with_fields(f, ElseSubgraphIndex=-1), "there is no subgraph -1"),
    "no options": (lambda f: with_fields(f, code=""), "the operator has no IfOptions"),
    "other options": (
        lambda f: with_fields(f, code="AddOptions"), "has AddOptions instead of IfOptions"
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_file_is_refused(name: str, tmp_path: Path) -> None:
    mistake, message = MISTAKES[name]
    file = _File(choice())
    mistake(file)
    (tmp_path / "net.tflite").write_bytes(file.content())
    with pytest.raises(CrtExportError, match=message):
        load(tmp_path / "net.tflite")


def test_subgraphs_that_run_each_other_again_and_again_are_refused(tmp_path: Path) -> None:
    """13 subgraphs, each of which runs the next one twice, are 4096 when they are written out."""
    file = _File(choice(depth=12))
    for part in file._parts:
        for position, operator in enumerate(part.operators):
            if operator.form.code == "IF":
                then = operator.form.fields["ThenSubgraphIndex"]
                both = {"ThenSubgraphIndex": then, "ElseSubgraphIndex": then}
                form = TfliteForm("IF", "IfOptions", both)
                part.operators[position] = replace(operator, form=form)
    (tmp_path / "net.tflite").write_bytes(file.content())
    with pytest.raises(CrtExportError, match=r"run each other so often that \d+ operators"):
        load(tmp_path / "net.tflite")


def test_inner_operators_that_are_not_supported_are_named(tmp_path: Path) -> None:
    file = _File(choice())
    part = file._parts[1]
    part.operators[0] = replace(
        part.operators[0], form=TfliteForm("BUCKETIZE"), code=("BUCKETIZE", 1)
    )
    (tmp_path / "net.tflite").write_bytes(file.content())
    with pytest.raises(CrtExportError, match=r"(?s)subgraph 1: 1 operator.*BUCKETIZE: operator 0"):
        load(tmp_path / "net.tflite")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda node: node.pop("graphs"), r"nodes\[0\].graphs: this key is missing"),
        (lambda node: node["graphs"].pop(), "expected 2 graphs, found 1"),
        (
            lambda node: node["graphs"][1]["nodes"][0]["inputs"].__setitem__(0, "nobody"),
            r"nodes\[0\].graphs\[1\].nodes\[0\].inputs\[0\]: there is no tensor 'nobody'",
        ),
        (
            lambda node: node["graphs"][1]["tensors"][0].__setitem__("dtyp", 1),
            r"nodes\[0\].graphs\[1\].tensors\[0\]: unknown key 'dtyp'|unknown key 'dtyp'",
        ),
    ],
)
def test_a_wrong_model_json_is_refused(
    wrong: Callable[[Any], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.json"
    save(choice(), path)
    document = json.loads(path.read_text())
    wrong(document["nodes"][0])
    path.write_text(json.dumps(document))
    with pytest.raises(CrtExportError, match=message):
        load(path)


# ---- what is left after simplifying


def kinds(graph: Graph) -> list[str]:
    return [type(node.op).__name__ for node in graph.nodes]


@pytest.mark.parametrize(("condition", "kept"), [(1, "Relu"), (0, "Tanh")])
def test_a_constant_condition_leaves_one_branch(condition: int, kept: str) -> None:
    assert kinds(run(choice(condition))) == [kept]


def test_conditions_that_are_constant_inside_leave_one_branch_there() -> None:
    (node,) = run(choice(depth=3)).nodes
    assert [kinds(graph) for graph in node.graphs] == [["Relu"], ["Tanh"]]


def test_loops_that_never_run_are_copies() -> None:
    body, condition = GraphBuilder(), GraphBuilder()
    condition.input(3)
    body_graph = body.inner(body.node(Relu(), body.input(3)))
    b = GraphBuilder()
    never = condition.inner(condition.constant(np.array([False])))
    result = run(b.finish(*b.control(While(), b.input(3), graphs=(never, body_graph))))
    assert kinds(result) == ["Reshape"]


def test_constants_go_into_graphs_and_unread_results_out_of_them() -> None:
    def branch() -> GraphBuilder:
        b = GraphBuilder()
        for _ in range(3):
            b.input(3)
        return b

    first, second = branch(), branch()
    then = first.inner(first.node(Add(), 0, 1), first.node(Mul(), 0, 0))
    other = second.inner(second.node(Mul(), 0, 1), second.node(Tanh(), 0))
    b = GraphBuilder()
    truth, x, unread = b.input(1, dtype=BOOL), b.input(3), b.input(3)
    fixed = b.constant(np.arange(3, dtype=np.float32))
    used, _ = b.control(If(), truth, x, fixed, unread, graphs=(then, other))
    (node,) = run(b.finish(used)).nodes
    assert len(node.inputs) == 2
    assert [kinds(graph) for graph in node.graphs] == [["Add"], ["Mul"]]
    assert [sum(t.constant is not None for t in g.tensors) for g in node.graphs] == [1, 1]


def test_what_a_loop_does_not_change_is_only_given_to_it() -> None:
    graph = NETWORKS["swapped"]().graph
    simplified = run(graph)
    (loop_,) = [node for node in simplified.nodes if node.graphs]
    assert (len(loop_.outputs), len(loop_.inputs)) == (3, 4)
    assert kinds(simplified).count("Reshape") == 2
    assert [simplified.tensors[t].name for t in simplified.outputs] == [
        graph.tensors[t].name for t in graph.outputs
    ]


def test_the_other_branch_keeps_its_meaning_where_scales_differ() -> None:
    """Inlined, bytes that a branch reads with another scale are still read so."""
    fine, coarse = Quantization((0.5,), (0,)), Quantization((2.0,), (3,))
    inside = GraphBuilder()
    x = inside.input(4, dtype=DType.INT8, quant=coarse)
    result = inside.inner(inside.node(Relu(), x, quant=coarse))
    b = GraphBuilder()
    given = b.input(4, dtype=DType.INT8, quant=fine)
    truth = b.constant(np.array([True]))
    (out,) = b.control(If(), truth, given, graphs=(result, result))
    b.tensors[out] = replace(b.tensors[out], type=replace(b.tensors[out].type, quant=fine))
    simplified = run(b.finish(out))
    assert kinds(simplified) == ["Reshape", "Relu", "Reshape"]
    assert simplified.type(simplified.nodes[1].outputs[0]).quant == coarse
    assert isinstance(simplified.nodes[0].op, Reshape)


# ---- plans


def planned(graph: Graph) -> tuple[Graph, Plan]:
    simplified = run(graph)
    result = plan(plain(simplified))
    check(simplified, result, ReplayProof(plain(simplified)))
    return simplified, result


def test_a_plan_that_lets_a_body_overwrite_what_goes_round_is_found_out() -> None:
    graph, good = planned(fibonacci().graph)
    (step,), (node,) = good.steps, graph.nodes
    condition, body = step.inner
    assert body.outputs.count(None) == 2
    (apart,) = (i for i, start in enumerate(body.outputs) if start is not None)

    def refused(message: str, *plans: Any) -> None:
        bad = replace(good, steps=(replace(step, inner=plans),))
        with pytest.raises(PlanError, match=message):
            check(graph, bad, ReplayProof(plain(graph)))

    everywhere = replace(body.plan, shared=frozenset(range(3)))
    refused("doesn't put its outputs where", condition, replace(body, outputs=(None,) * 3))
    refused("graph 1 of .*: .*graph input .* lies in bytes 0 to 4 of input", condition,
            replace(body, outputs=(None,) * 3, plan=everywhere))
    homes = list(body.plan.placements)
    homes[node.graphs[1].inputs[apart]] = Placement(Space.OUTPUT, apart)
    over = replace(everywhere, placements=tuple(homes))
    refused(r"graph 1 of .*: .*(overwrites what it reads|but bytes 0 to 4 hold)", condition,
            replace(body, outputs=(None,) * 3, plan=over))
    refused("doesn't put its outputs where", replace(condition, outputs=(None,)), body)
    refused("isn't aligned", replace(condition, outputs=(1,)), body)
    refused("uses byte 0 of its scratch twice", replace(condition, outputs=(0,), plan=replace(
        condition.plan, workspace_size=4)), body)
    refused("has 2 graphs, but 1 plans of them", condition)
    refused("needs .* bytes of scratch, but has", condition,
            replace(body, workspace=body.workspace + 64))
    late = replace(body.plan, steps=body.plan.steps[::-1])
    refused("graph 1 of .*: .* reads .* but bytes 0 to 4 hold", condition, replace(body, plan=late))
    home = body.plan.placements[node.graphs[1].outputs[apart]]
    assert home is not None
    assert home.index == apart


def test_a_body_that_only_changes_a_part_writes_it_in_its_place() -> None:
    graph, result = planned(collected().graph)
    ((condition, body),) = (step.inner for step in result.steps if step.inner)
    assert body.outputs == (None, None)
    assert condition.outputs[0] is not None
    (loop_,) = (node for node in graph.nodes if node.graphs)
    assert [type(node.op).__name__ for node in loop_.graphs[1].nodes].count("Reshape") <= 1


def test_inner_graphs_have_no_memory_but_that_of_their_node() -> None:
    for name, make in NETWORKS.items():
        _, result = planned(make().graph)
        for step in result.steps:
            for inner_ in step.inner:
                assert step.scratch is not None or not inner_.plan.workspace_size, name


def test_variables_are_not_initialised_where_it_may_not_happen(tmp_path: Path) -> None:
    file = _File(choice())
    file._parts[1].operators.append(FileOperator(TfliteForm("CALL_ONCE"), ("CALL_ONCE", 1), (), ()))
    (tmp_path / "m.tflite").write_bytes(file.content())
    with pytest.raises(CrtExportError, match=r"subgraph 1 → operator 1 \(CALL_ONCE\): variables"):
        load(tmp_path / "m.tflite")


def test_a_branch_does_not_end_a_run(tmp_path: Path) -> None:
    file, code = _File(choice()), "custom:CIRCULAR_BUFFER"
    part = file._parts[1]
    at = len(part.tensors)
    for count in (1, 3):
        part.tensors.append(Tensor(f"slots {count}", TensorType(DType.INT8, (1, count, 1, 2))))
    part.operators.append(FileOperator(TfliteForm(code), (code, 1), (at,), (at + 1,)))
    (tmp_path / "m.tflite").write_bytes(file.content())
    with pytest.raises(CrtExportError, match="a subgraph that IF or WHILE runs can't end here"):
        load(tmp_path / "m.tflite")
