"""Variables of .tflite files: their values before the first run, and files that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.ir.graph import Graph, Node, Tensor, Variable
from crtexport.ir.ops import AssignVariable, ReadVariable
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.simulation.tflite_form import TfliteForm
from crtexport.simulation.tflite_parts import FileOperator
from crtexport.simulation.tflite_writer import _File, to_tflite
from crtexport.support.errors import CrtExportError
from tests.differential.network import interpret
from tests.tflite_builder import ModelBuilder

PAIR = TensorType(DType.INT16, (2,))
START = ConstantRef.of(np.array([3, -4], np.int16))


def network(*, second: bool = False) -> Graph:
    """Reads a variable that starts as (3, -4), and gives it the input; ``second``: another one of
    the same name that starts as zeros."""
    tensors = [
        Tensor("x", PAIR), Tensor("kept", PAIR, variable=Variable(START)), Tensor("y", PAIR),
    ]
    nodes = [Node(ReadVariable(), (1,), (2,)), Node(AssignVariable(), (1, 0), ())]
    outputs = [2]
    if second:
        tensors += [Tensor("kept", PAIR, variable=Variable()), Tensor("z", PAIR)]
        nodes += [Node(AssignVariable(), (3, 0), ()), Node(ReadVariable(), (3,), (4,))]
        outputs.append(4)
    return Graph("net", tuple(tensors), tuple(nodes), (0,), tuple(outputs))


def loaded(folder: Path, content: bytes) -> Graph:
    path = folder / "net.tflite"
    path.write_bytes(content)
    return load(path)


def test_what_call_once_assigns_is_the_initial_value(tmp_path: Path) -> None:
    graph = loaded(tmp_path, to_tflite(network(second=True)))
    kept = [graph.tensors[v] for v in graph.variables]
    assert [(t.name, t.type) for t in kept] == [("kept", PAIR)] * 2
    values = [t.variable.initial.read() for t in kept if t.variable and t.variable.initial]
    assert values == [START.read(), bytes(4)]
    assert [type(node.op).__name__ for node in graph.nodes] == [
        "ReadVariable", "AssignVariable", "AssignVariable", "ReadVariable",
    ]


def test_variable_tensors_start_as_runtimes_fill_them(tmp_path: Path) -> None:
    model = ModelBuilder()
    x = model.tensor("x", (2,), "int8", scale=0.5, zero_point=3)
    h = model.tensor("h", (2,), "int8", scale=0.5, zero_point=3, variable=True)
    model.op("ASSIGN_VARIABLE", [h, x], [], version=1)
    y = model.tensor("y", (2,), "int8", scale=0.5, zero_point=3)
    model.op("READ_VARIABLE", [h], [y], version=1)
    graph = loaded(tmp_path, model.build([x], [y]))
    (kept,) = (graph.tensors[v].variable for v in graph.variables)
    assert kept is not None
    assert kept.initial is not None
    assert kept.initial.read() == b"\3\3"


def _operator(code: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> FileOperator:
    return FileOperator(TfliteForm(code), (code, 1), inputs, outputs)


def computed(file: _File) -> None:
    file._parts[1].operators.append(_operator("RELU", (1,), (1,)))


def to_nothing(file: _File) -> None:
    file._parts[1].operators[1] = _operator("ASSIGN_VARIABLE", (1, 1), ())


def no_constant(file: _File) -> None:
    file._parts[1].tensors[1] = replace(file._parts[1].tensors[1], constant=None)


def other_type(file: _File) -> None:
    file._parts[1].tensors[1] = Tensor("start", TensorType(DType.INT8, (4,)), START)


def no_subgraph(file: _File) -> None:
    del file._parts[1]


def no_options(file: _File) -> None:
    file._parts[0].operators[1] = _operator("VAR_HANDLE", (), (1,))


def no_handle(file: _File) -> None:
    file._parts[0].operators[2] = _operator("READ_VARIABLE", (0,), (2,))


MISTAKES: dict[Callable[[_File], None], str] = {
    computed: r"subgraph 1 → operator 2 \(RELU\): variables are initialised with more than con",
    to_nothing: r"operator 1 \(ASSIGN_VARIABLE\): this assigns to no variable",
    no_constant: "the initial value 'kept' is no constant",
    other_type: r"variable 'kept': .* used as int16\[2\], its initial value is int8\[4\]",
    no_subgraph: "there is no subgraph 1; the file has 1",
    no_options: r"operator 1 \(VAR_HANDLE\): the operator lacks its options",
    no_handle: r"operator 2 \(READ_VARIABLE\): the variable isn't named by a VAR_HANDLE",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.__name__)
def test_what_is_wrong_is_named(mistake: Callable[[_File], None], tmp_path: Path) -> None:
    file = _File(network())
    mistake(file)
    with pytest.raises(CrtExportError, match=MISTAKES[mistake]):
        loaded(tmp_path, file.content())


def test_a_constant_variable_is_refused(tmp_path: Path) -> None:
    model = ModelBuilder()
    h = model.tensor("h", (2,), data=[1.0, 2.0], variable=True)
    y = model.tensor("y", (2,))
    model.op("READ_VARIABLE", [h], [y], version=1)
    with pytest.raises(CrtExportError, match="a variable tensor can't be a constant"):
        loaded(tmp_path, model.build([], [y]))


@pytest.mark.parametrize(("dtype", "scale"), [("float16", None), ("int8", 0.25), ("int16", 0.5)])
def test_a_state_starts_as_the_constant_that_is_dequantized_into_it(
    dtype: str, scale: float | None, tmp_path: Path
) -> None:
    """Converters store first states in fewer bits, too; runtimes dequantize them once."""
    model = ModelBuilder()
    numbers = np.array([6, -8, 1, 28])
    zero = 2 if dtype == "int8" else 0
    small = model.tensor("small", (4,), dtype, scale=scale, zero_point=zero, data=numbers)
    state = model.tensor("state", (4,), variable=True)
    model.op("DEQUANTIZE", [small], [state])
    y = model.tensor("y", (4,))
    model.op("READ_VARIABLE", [state], [y], version=1)
    graph = loaded(tmp_path, model.build([], [y]))
    assert [type(node.op) for node in graph.nodes] == [ReadVariable]
    (kept,) = (graph.tensors[v].variable for v in graph.variables)
    assert kept is not None
    assert kept.initial is not None
    expected = numbers if scale is None else (numbers - zero) * scale
    assert kept.initial.read() == expected.astype(np.float32).tobytes()


@pytest.mark.parametrize("numbers", [(0, 0, 0), (0, 1, 0)])
def test_zeros_may_have_the_scale_0(numbers: tuple[int, ...], tmp_path: Path) -> None:
    """Converters give it to constants that are all zero; of other numbers it has no meaning."""
    model = ModelBuilder()
    x, y = (model.tensor(name, (2, 3), "int8", scale=0.5) for name in "xy")
    c = model.tensor("c", (3,), "int8", scale=0.0, data=numbers)
    model.op("ADD", [x, c], [y])
    content = model.build([x], [y])
    if any(numbers):
        with pytest.raises(CrtExportError, match="tensor 2 'c'"):
            loaded(tmp_path, content)
        return
    data = np.arange(-3, 3).astype(np.int8).reshape(2, 3)
    (found,) = interpret(loaded(tmp_path, content), [data])
    np.testing.assert_array_equal(found, data)
