"""Networks of one operator whose scales or zero points are changed: either they break a rule, or
the reference takes them, too, and gives the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.verify import verify
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from crtexport.simulation.tflite_writer import is_hybrid, to_tflite
from crtexport.support.errors import CrtExportError, RunFailedError
from tests.differential.cases import CASES, TYPES, SeededDraw
from tests.differential.network import add_constants, interpret
from tests.fuzz.beyond import beyond_the_reference
from tests.fuzz.growing import Drawing
from tests.lowering.changed_nodes import changed_scales
from tests.tflite_builder import run_reference

FACTORS = (1.0, 0.8, 1.37, 3.0)
EACH = 10
"""Changes of each operator and element type."""

REFUSED = {
    **dict.fromkeys(
        ("pack", "unpack", "mirror_pad", "batch_to_space_nd", "space_to_batch_nd"),
        "the reference compares scales of elements that it only moves",
    ),
    **dict.fromkeys(
        ("conv_2d", "depthwise_conv_2d", "fully_connected", "transpose_conv_2d"),
        "the reference compares the scale of the bias",
    ),
    **dict.fromkeys(("sum_", "reduce_prod"), "the reference doesn't rescale these types"),
    **dict.fromkeys(("concatenation", "dequantize"), "the reference takes int16 around 0 alone"),
    "rsqrt": "the reference takes no negative numbers",
}
"""Operators that crtexport takes with scales that the reference refuses."""

NAMES = [
    name for name in CASES if not any(w in name for w in ("variable", "svdf", "lstm"))
]
"""All whose reference keeps nothing in variables from the run before."""


def changed(graph: Graph) -> list[Graph]:
    """Returns the network with each of its scales changed in each way."""
    (node,) = graph.nodes
    return [
        replace(graph, tensors=(
            *graph.tensors[:number], replace(tensor, type=replace(tensor.type, quant=quant)),
            *graph.tensors[number + 1 :],
        ))
        for number in dict.fromkeys(t for t in (*node.inputs, *node.outputs) if t is not None)
        for tensor in [graph.tensors[number]] for quant in changed_scales(tensor.type, FACTORS)
    ]


def written(graph: Graph) -> bytes | None:
    """Returns a network that breaks no rule as a file; None for others."""
    try:
        verify(graph)
        if check(Context(graph, graph.nodes[0])):
            return None
        return to_tflite(graph, dequantize_weights=is_hybrid(graph))
    except CrtExportError:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_what_no_rule_refuses_is_what_the_reference_computes(name: str, tmp_path: Path) -> None:
    for dtype in TYPES[name]:
        case = CASES[name](SeededDraw(1), dtype)
        (tmp_path / "m.tflite").write_bytes(case.content)
        network = load(tmp_path / "m.tflite")
        if len(network.nodes) != 1:
            continue
        found = changed(network)
        for graph in Drawing(f"{name} {dtype}").rng.sample(found, min(EACH, len(found))):
            content = written(graph)
            if content is None:
                continue
            try:
                wanted = run_reference(content, *case.inputs)
            except RunFailedError:  # it aborts where multipliers leave what it shifts by
                continue
            except CrtExportError as error:
                if name not in REFUSED:
                    pytest.fail(f"{dtype}, which no rule refuses: {error}")
                continue
            compare(graph, case.inputs, wanted, f"{dtype}, {graph.tensors}")


def compare(
    graph: Graph, inputs: tuple[np.ndarray, ...], wanted: list[np.ndarray], what: str
) -> None:
    """Compares with the reference, unless the scales are beyond what it can compute."""
    try:
        ours = interpret(graph, [np.asarray(x) for x in inputs])
    except CrtExportError:  # for scales that are too extreme, or of a table
        return
    values = dict(zip((*graph.inputs, *graph.outputs), (*inputs, *ours), strict=True))
    add_constants(graph, values)
    with np.errstate(all="ignore"):
        if beyond_the_reference(graph, graph.nodes[0], values):
            return
    for mine, theirs in zip(ours, wanted, strict=True):
        if mine.dtype.kind == "f":
            reach = 1e-5 * max(float(np.abs(theirs).max(initial=0)), 1)
            np.testing.assert_allclose(mine, theirs, 1e-5, reach, err_msg=what)
        else:
            np.testing.assert_array_equal(mine, theirs, what)
