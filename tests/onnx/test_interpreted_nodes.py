"""All of onnx's backend tests that make sense on a microcontroller, in Kernel IR's interpreter.

``test_nodes.py`` compiles a part of them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from crtexport.importers.onnx.domains import ONNX, PREVIEW
from crtexport.importers.onnx.registry import TABLE, load_table
from tests.differential.network import interpret
from tests.onnx.batch import differs, imported
from tests.onnx.nodes import FOLDER
from tests.onnx.suite import Case, written
from tests.onnx.test_nodes import UNTESTED

LONG = {"MaxPool1d_stride_padding_dilation", "MaxPool2d_stride_padding_dilation", "operator_conv"}
"""Tests whose kernels the interpreter would run for seconds. ``test_nodes.py`` compiles the first.
"""
ROUNDED = {"dft_inverse", "dft_inverse_opset19"}
"""Tests that expect the rounding errors of NumPy's transforms, where ours are smaller."""
BEYOND = {
    "operator_add_broadcast", "operator_add_size1_right_broadcast",
    "operator_add_size1_singleton_broadcast", "operator_addconstant",
}
"""Tests whose data, arbitrary doubles, are beyond what float32 holds."""

load_table()
OPERATORS = sorted({name for domain, name in TABLE if domain in (ONNX, PREVIEW)} - UNTESTED)
OTHERS = ("expanded", "pytorch-operator", "pytorch-converted", "simple")
"""Functions of ONNX as the graphs that define them, and models of several nodes, by suite."""


@cache
def groups() -> dict[str, list[Case]]:
    """Returns the tests by operator, or by suite."""
    found = defaultdict(list)
    for case in written(FOLDER):
        if not case.why and case.suite != "light" and case.name not in LONG | ROUNDED | BEYOND:
            plain = case.operator if case.suite == "node" else case.suite
            found["expanded" if case.expanded else plain].append(case)
    return found


@pytest.mark.parametrize("group", [*OPERATORS, *OTHERS])
def test_nodes_give_what_onnx_says(group: str, tmp_path: Path) -> None:
    assert groups()[group]
    for case in groups()[group]:
        network, given = imported(case, tmp_path)
        found = interpret(network, [given[network.tensors[i].name] for i in network.inputs])
        assert not differs(case, found), case.name


def test_no_test_is_left_out() -> None:
    assert set(groups()) <= {*OPERATORS, *OTHERS}
