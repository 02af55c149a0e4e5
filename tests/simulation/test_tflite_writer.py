"""Written .tflite files mean what the graph means: to our importer and to the runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tflite
from msgspec.structs import replace

from crtexport.importers import load
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.infer import infer
from crtexport.ir.ops import (
    INTERNAL,
    OPERATORS,
    Activation,
    AveragePool2D,
    Concatenation,
    Conv2D,
    DepthwiseConv2D,
    Foreign,
    FullyConnected,
    MaxPool2D,
    Op,
    Padding2D,
    Reshape,
    Slice,
    Transpose,
)
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.ir.verify import verify
from crtexport.simulation import tflite_forms
from crtexport.simulation.runtimes import RuntimeName
from crtexport.simulation.tflite_writer import MAX_CONSTANTS, is_hybrid, to_tflite
from crtexport.support.errors import CrtExportError
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.differential.network import interpret
from tests.differential.numpy_cases import NUMPY_CASES
from tests.helpers import (
    FLOAT_NETWORKS,
    INT8_NETWORKS,
    ROOT,
    reference,
    require_reference,
    shared_model,
    unavailable,
)
from tests.tflite_builder import run_reference

Array = npt.NDArray[Any]

DIGITS = ROOT / "docs" / "examples" / "digits" / "model.json"
SEEDS = range(3)
FLOAT_TOLERANCE = 1e-5  # of full scale
FLOAT, INT8, UINT8 = DType.FLOAT32, DType.INT8, DType.UINT8


def reload(content: bytes, tmp_path: Path) -> Graph:
    path = tmp_path / "written.tflite"
    path.write_bytes(content)
    return load(path)


def meaning(graph: Graph) -> tuple[Any, ...]:
    """All of a graph but the names of its nodes and files."""
    constants = [None if t.constant is None else t.constant.read() for t in graph.tensors]
    nodes = [(node.op, node.inputs, node.outputs) for node in graph.nodes]
    types = [(t.name, t.type) for t in graph.tensors]
    return types, constants, nodes, graph.inputs, graph.outputs


def random_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for type_ in map(graph.type, graph.inputs):
        if type_.dtype.is_float:
            arrays.append(rng.normal(0, 1, type_.shape).astype(type_.dtype.numpy))
        else:
            low, high = type_.dtype.limits
            arrays.append(rng.integers(low, high + 1, type_.shape).astype(type_.dtype.numpy))
    return arrays


def same(ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def close(ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        tolerance = FLOAT_TOLERANCE * float(np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def network(
    op: Op, *operands: TensorType | tuple[TensorType, Array],
    quant: Quantization | None = None, name: str = "x",
) -> Graph:
    """A valid graph of one node; operands with values are constants."""
    tensors = []
    for number, operand in enumerate(operands):
        type_, constant = operand if isinstance(operand, tuple) else (operand, None)
        ref = None if constant is None else ConstantRef.of(constant.astype(type_.dtype.numpy))
        tensors.append(Tensor(f"{name}{number}", type_, ref))
    (result,) = infer(op, tuple(t.type for t in tensors))
    tensors.append(Tensor("y", replace(result, quant=quant)))
    given = tuple(i for i, t in enumerate(tensors[:-1]) if t.constant is None)
    node = Node(op, tuple(range(len(operands))), (len(operands),), "layer", "node 'layer'")
    graph = Graph("net", tuple(tensors), (node,), given, node.outputs, source="net.json")
    verify(graph)
    return graph


def one_scale(scale: float, zero_point: int = 0) -> Quantization:
    return Quantization((float(np.float32(scale)),), (zero_point,))


@pytest.fixture(params=["tflite-runtime", "ai-edge-litert"])
def runtime(request: pytest.FixtureRequest) -> RuntimeName:
    name: RuntimeName = request.param
    require_reference(name)
    return name


@pytest.mark.models
@pytest.mark.parametrize("name", [*INT8_NETWORKS, *FLOAT_NETWORKS])
def test_a_written_network_computes_what_the_file_that_it_came_from_computes(
    name: str, runtime: RuntimeName, tmp_path: Path
) -> None:
    original = shared_model(name)
    graph = load(original)
    written = tmp_path / "written.tflite"
    written.write_bytes(to_tflite(graph))
    assert meaning(load(written)) == meaning(graph)
    inputs = [random_inputs(graph, seed) for seed in SEEDS]
    expected = [reference(original, runtime).run(row) for row in inputs]
    running = reference(written, runtime)
    for row, outputs in zip(inputs, expected, strict=True):
        same(running.run(row), outputs)


@pytest.mark.models
def test_a_hybrid_network_with_float_weights_computes_what_its_kernels_compute(
    runtime: RuntimeName, tmp_path: Path
) -> None:
    graph = load(shared_model("kws_fp32"))
    assert is_hybrid(graph)
    written = tmp_path / "written.tflite"
    written.write_bytes(to_tflite(graph, dequantize_weights=True))
    assert not is_hybrid(load(written))
    inputs = random_inputs(graph)
    close(interpret(graph, inputs), reference(written, runtime).run(inputs))


def test_the_digits_example_computes_what_its_kernels_compute(tmp_path: Path) -> None:
    if not DIGITS.is_file():
        unavailable("digits", "the digits example is not in the checkout")
    graph = load(DIGITS)
    content = to_tflite(graph)
    for seed in SEEDS:
        inputs = random_inputs(graph, seed)
        same(interpret(graph, inputs), run_reference(content, *inputs))


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_each_operator_keeps_its_meaning(name: str, dtype: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        case = CASES[name](SeededDraw(seed), dtype)
        original = tmp_path / "original.tflite"
        original.write_bytes(case.content)
        graph = load(original)
        content = to_tflite(graph)
        ours, theirs = (run_reference(c, *case.inputs) for c in (content, case.content))
        if name == "conv_3d":  # several convolutions, which get biases of zeros
            close(ours, theirs)
            continue
        assert meaning(reload(content, tmp_path)) == meaning(graph)
        same(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_each_operator_is_taken_by_every_runtime(
    name: str, runtime: RuntimeName, tmp_path: Path
) -> None:
    case = CASES[name](SeededDraw(7), dict(PAIRS[::-1])[name])
    original, written = tmp_path / "original.tflite", tmp_path / "written.tflite"
    original.write_bytes(case.content)
    written.write_bytes(to_tflite(load(original)))
    expected = reference(original, runtime).run(case.inputs)
    same(reference(written, runtime).run(case.inputs), expected)


@pytest.mark.parametrize("activation", Activation)
def test_attributes_that_the_cases_leave_alone_are_written(
    activation: Activation, tmp_path: Path
) -> None:
    image = TensorType(FLOAT, (1, 2, 2, 3))
    weights = (TensorType(FLOAT, (5, 3)), np.ones((5, 3)))
    for graph in (
        network(FullyConnected(True, activation), image, weights),
        network(Concatenation(2, activation), image, image),
    ):
        assert meaning(reload(to_tflite(graph), tmp_path)) == meaning(graph)


def test_every_operator_has_a_case_here() -> None:
    written = {name.replace("_", "") for name in CASES} | {"if", "while"}  # in tests/control
    # Some nodes are made while exporting, of operators that each have a case; those that are
    # compared with NumPy have no TensorFlow Lite operator, or one that no runtime has right.
    compared = {type(case.op) for case in NUMPY_CASES.values()}
    operators = {
        op.__name__.lower() for op in OPERATORS
        if not issubclass(op, Foreign) and op not in (*INTERNAL, *compared)
    }
    assert written >= operators


CONVOLUTION_PADDINGS = [
    Padding2D(1, 1, 1, 1), Padding2D(0, 3, 0, 0), Padding2D(2, 0, 0, 1), Padding2D(0, 0, 4, 0),
]


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("dtype", [FLOAT, INT8])
@pytest.mark.parametrize("padding", CONVOLUTION_PADDINGS, ids=str)
def test_a_convolution_padded_otherwise_gets_a_pad_before_it(
    padding: Padding2D, dtype: DType, depthwise: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    integer = dtype is INT8
    values = rng.integers(-127, 128, (3, 2, 3, 3)) if integer else rng.normal(0, 1, (3, 2, 3, 3))
    weights = values[:1] if depthwise else values
    op: Op = (
        DepthwiseConv2D(stride=(2, 2), padding=padding)
        if depthwise else Conv2D(stride=(2, 2), padding=padding)
    )
    graph = network(
        op,
        TensorType(dtype, (1, 6, 6, 3), one_scale(0.5, 3) if integer else None),
        (TensorType(dtype, weights.shape, one_scale(0.01) if integer else None), weights),
        quant=one_scale(0.3, -7) if integer else None,
    )
    inputs = random_inputs(graph)
    content = to_tflite(graph)
    ours, theirs = interpret(graph, inputs), run_reference(content, *inputs)
    (same if integer else close)(ours, theirs)
    names = [type(node.op).__name__ for node in reload(content, tmp_path).nodes]
    assert names == ["Pad", type(op).__name__]


@pytest.mark.parametrize(
    ("size", "padding", "code"),
    [
        (6, Padding2D(), tflite.Padding.VALID),
        (6, Padding2D(0, 1, 0, 1), tflite.Padding.SAME),
        # The last windows don't reach what is added after row 6 and column 6.
        (6, Padding2D(0, 1, 0, 2), tflite.Padding.SAME),
        (6, Padding2D(1, 1, 1, 1), None),
        (6, Padding2D(0, 1, 0, 0), None),
        # As many windows as SAME or VALID give, elsewhere.
        (7, Padding2D(0, 2, 0, 2), None),
        (7, Padding2D(1, 0, 1, 0), None),
    ],
    ids=str,
)
def test_a_padding_is_same_or_valid_where_the_windows_are(
    size: int, padding: Padding2D, code: int | None
) -> None:
    image, weights = TensorType(FLOAT, (1, size, size, 1)), TensorType(FLOAT, (1, 3, 3, 1))
    op = Conv2D(stride=(2, 2), padding=padding)
    graph = network(op, image, (weights, np.ones((1, 3, 3, 1))))
    assert tflite_forms.implicit_padding(graph, graph.nodes[0], op) == code


@pytest.mark.parametrize("kind", [AveragePool2D, MaxPool2D])
def test_a_pool_that_tensorflow_lite_cant_say_is_refused_by_name(
    kind: type[AveragePool2D | MaxPool2D],
) -> None:
    op = kind((3, 3), (2, 2), Padding2D(1, 1, 1, 1))
    graph = network(op, TensorType(FLOAT, (1, 6, 6, 1)))
    with pytest.raises(CrtExportError, match=rf"node 'layer'.*no {kind.__name__} with Padding2D"):
        to_tflite(graph)


@pytest.mark.parametrize("kind", [AveragePool2D, MaxPool2D])
def test_a_pool_with_padding_that_no_window_reaches_is_written(
    kind: type[AveragePool2D | MaxPool2D],
) -> None:
    graph = network(kind((2, 2), (2, 2), Padding2D(0, 1, 0, 1)), TensorType(FLOAT, (1, 6, 6, 1)))
    inputs = random_inputs(graph)
    close(interpret(graph, inputs), run_reference(to_tflite(graph), *inputs))


@pytest.mark.parametrize("dtype", [FLOAT, INT8, UINT8])
def test_a_convolution_without_bias_gets_zeros(dtype: DType, tmp_path: Path) -> None:
    quant = None if dtype is FLOAT else one_scale(0.25, 3)
    per_unit = Quantization((0.5, 0.25), (0, 0), 0)
    weight_quant = {FLOAT: None, INT8: per_unit, UINT8: one_scale(0.5, 128)}[dtype]
    graph = network(
        Conv2D(), TensorType(dtype, (1, 2, 2, 1), quant),
        (TensorType(dtype, (2, 1, 1, 1), weight_quant), np.array([[[[1]]], [[[2]]]])),
        quant=quant,
    )
    content = to_tflite(graph)
    written = reload(content, tmp_path)
    bias = written.tensors[written.required(written.nodes[0], 2)]
    assert bias.type.dtype is (FLOAT if dtype is FLOAT else DType.INT32)
    assert bias.constant is not None
    assert not any(bias.constant.read())
    assert run_reference(content, *random_inputs(graph))[0].shape == (1, 2, 2, 2)


def test_float_weights_are_scaled_along_their_axis(tmp_path: Path) -> None:
    stored = np.arange(-4, 4).reshape(1, 2, 2, 2)
    scales = Quantization((0.5, 0.25), (0, 0), 3)
    graph = network(
        DepthwiseConv2D(), TensorType(FLOAT, (1, 2, 2, 2)),
        (TensorType(INT8, stored.shape, scales), stored),
    )
    written = reload(to_tflite(graph, dequantize_weights=True), tmp_path)
    tensor = written.tensors[written.required(written.nodes[0], 1)]
    assert tensor.constant is not None
    assert tensor.type == TensorType(FLOAT, stored.shape)
    np.testing.assert_array_equal(tensor.constant.array(tensor.type), stored * [0.5, 0.25])
    inputs = random_inputs(graph)
    close(interpret(graph, inputs), interpret(written, inputs))


def test_float_weights_are_what_int8_weights_stand_for(tmp_path: Path) -> None:
    stored = np.arange(8).reshape(2, 4)
    graph = network(
        FullyConnected(), TensorType(FLOAT, (1, 4)),
        (TensorType(INT8, stored.shape, one_scale(0.5)), stored),
    )
    x, weights, y = graph.tensors
    shifted = replace(weights, type=replace(weights.type, quant=one_scale(0.5, 3)))
    second = replace(graph.nodes[0], outputs=(3,))
    both = replace(
        graph, tensors=(x, shifted, y, replace(y, name="z")), nodes=(*graph.nodes, second),
        outputs=(2, 3),
    )
    written = reload(to_tflite(both, dequantize_weights=True), tmp_path)
    (weights,) = [t for t in written.tensors if t.constant is not None]  # shared as before
    assert weights.constant is not None
    np.testing.assert_array_equal(weights.constant.array(weights.type), (stored - 3) * 0.5)


def test_hybrid_weights_stay_int8_unless_asked_for(tmp_path: Path) -> None:
    graph = network(
        FullyConnected(), TensorType(FLOAT, (1, 4)),
        (TensorType(INT8, (2, 4), one_scale(0.5)), np.arange(8).reshape(2, 4)),
    )
    assert is_hybrid(graph)
    assert meaning(reload(to_tflite(graph), tmp_path)) == meaning(graph)


def test_int8_weights_stay_int8_in_integer_nodes(tmp_path: Path) -> None:
    graph = network(
        FullyConnected(), TensorType(INT8, (1, 4), one_scale(0.5)),
        (TensorType(INT8, (2, 4), one_scale(0.5)), np.arange(8).reshape(2, 4)),
        quant=one_scale(1.0),
    )
    assert not is_hybrid(graph)
    assert to_tflite(graph, dequantize_weights=True) == to_tflite(graph)


def test_hybrid_weights_computed_at_run_time_are_refused() -> None:
    graph = network(
        FullyConnected(), TensorType(FLOAT, (1, 4)), TensorType(INT8, (2, 4), one_scale(0.5))
    )
    with pytest.raises(CrtExportError, match=r"node 'layer'.*'x1' are not a constant"):
        to_tflite(graph, dequantize_weights=True)


def test_a_network_past_two_gib_is_refused_without_reading_it() -> None:
    graph = network(
        FullyConnected(), TensorType(FLOAT, (1, 4)), (TensorType(FLOAT, (1, 4)), np.ones((1, 4)))
    )
    huge = ConstantRef(MAX_CONSTANTS, path=Path("there is no such file"))
    tensors = (graph.tensors[0], replace(graph.tensors[1], constant=huge), graph.tensors[2])
    with pytest.raises(CrtExportError, match=f"net.json: {MAX_CONSTANTS} bytes of constants"):
        to_tflite(replace(graph, tensors=tensors))


def test_an_axis_that_a_slice_drops_is_written_without_a_stride(runtime: RuntimeName) -> None:
    """Runtimes read elsewhere where an axis is dropped with a stride that is not 1."""
    op = Slice((1, 0, 0), (1, 1, 2), (1, 2, 3), (1, 2))
    graph = network(replace(op, stride=(1, -2, 3)), TensorType(FLOAT, (3, 3, 5)))
    assert to_tflite(graph) == to_tflite(network(op, TensorType(FLOAT, (3, 3, 5))))
    (given,) = random_inputs(graph)
    same(reference(to_tflite(graph), runtime).run([given]), [given[1:2, 0, ::3]])


def test_a_scalar_can_be_reshaped_to(runtime: RuntimeName, tmp_path: Path) -> None:
    graph = network(Reshape(()), TensorType(FLOAT, (1, 1)))
    (result,) = reference(to_tflite(graph), runtime).run([np.array([[3]], np.float32)])
    assert result.shape == ()
    assert result == 3


def test_a_scalar_can_be_transposed(runtime: RuntimeName) -> None:
    graph = network(Transpose(()), TensorType(FLOAT, ()))
    (result,) = reference(to_tflite(graph), runtime).run([np.array(3, np.float32)])
    assert result.shape == ()
    assert result == 3


@pytest.mark.parametrize("name", ["", 'a"\n*/', "Größe 猫", "a\x00b"])
def test_names_are_kept(name: str, tmp_path: Path) -> None:
    graph = network(Reshape((4,)), TensorType(FLOAT, (2, 2)), name=name)
    assert reload(to_tflite(graph), tmp_path).tensors[0].name == f"{name}0"


def test_a_name_that_utf_8_cant_spell_is_escaped(tmp_path: Path) -> None:
    graph = network(Reshape((4,)), TensorType(FLOAT, (2, 2)), name="\ud800")
    assert reload(to_tflite(graph), tmp_path).tensors[0].name == r"\ud8000"


def constant_addresses(content: bytes) -> Iterator[int]:
    """Returns the place in the file where each constant begins."""
    model = tflite.Model.GetRootAs(content, 0)
    start = np.frombuffer(content, np.uint8).ctypes.data
    for number in range(1, model.BuffersLength()):
        yield model.Buffers(number).DataAsNumpy().ctypes.data - start


def test_constants_lie_at_multiples_of_16() -> None:
    graph = network(
        FullyConnected(), TensorType(INT8, (1, 3), one_scale(0.5)),
        (TensorType(INT8, (5, 3), one_scale(0.5)), np.ones((5, 3))),
        (TensorType(DType.INT32, (5,)), np.ones(5)),
        quant=one_scale(1.0),
    )
    addresses = list(constant_addresses(to_tflite(graph)))
    assert len(addresses) == 2
    assert [address % 16 for address in addresses] == [0, 0]
