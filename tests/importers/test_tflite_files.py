"""Whole .tflite files: what the graph is, and what is said about files that can't be used."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Dequantize, FullyConnected
from crtexport.ir.text import dump
from crtexport.ir.types import DType, Quantization
from crtexport.support.errors import CrtExportError
from tests.helpers import FLOAT_NETWORKS, INT8_NETWORKS, shared_model
from tests.tflite_builder import ModelBuilder

Spoil = Callable[[ModelBuilder], bytes]


def dense(model: ModelBuilder, *, x_name: str = "x", **options: object) -> tuple[int, int]:
    """A fully connected layer of int8, 3 to 2."""
    x = model.tensor(x_name, (1, 3), "int8", 0.5, 1, signature=(-1, 3))
    w = model.tensor("w", (2, 3), "int8", 0.25, data=[[1, 2, 3], [-4, 5, 6]])
    b = model.tensor("b", (2,), "int32", 0.125, data=[7, -8])
    y = model.tensor("y", (1, 2), "int8", 0.5, -1)
    model.op("FULLY_CONNECTED", [x, w, b], [y], **options)
    return x, y


def small() -> bytes:
    model = ModelBuilder()
    x, y = dense(model)
    return model.build([x], [y])


def load_bytes(tmp_path: Path, content: bytes, name: str = "net.tflite") -> Graph:
    path = tmp_path / name
    path.write_bytes(content)
    return load(path)


@pytest.mark.models
@pytest.mark.parametrize("name", [*INT8_NETWORKS, *FLOAT_NETWORKS])
def test_reference_network_loads(name: str) -> None:
    graph = load(shared_model(name))
    assert graph.name == name
    assert graph.source == f"{name}.tflite"
    assert all(
        tensor.constant.path == shared_model(name) for tensor in graph.tensors if tensor.constant
    )


@pytest.mark.models
def test_hybrid_network_keeps_its_int8_weights_and_float_activations() -> None:
    graph = load(shared_model("kws_fp32"))
    first = graph.nodes[0]
    types = [graph.type(i) for i in first.inputs if i is not None]
    assert [t.dtype for t in types] == [DType.FLOAT32, DType.INT8, DType.FLOAT32]
    assert types[1].quant is not None
    assert types[0].quant is None


def test_constants_are_ranges_of_the_file(tmp_path: Path) -> None:
    content = small()
    graph = load_bytes(tmp_path, content)
    weights = graph.tensors[graph.nodes[0].inputs[1] or 0]
    assert weights.constant is not None
    assert weights.constant.data is None
    assert weights.constant.array(weights.type).tolist() == [[1, 2, 3], [-4, 5, 6]]
    start = weights.constant.offset
    assert content[start : start + 6] == bytes([1, 2, 3, 252, 5, 6])


def test_graph_says_where_it_comes_from(tmp_path: Path) -> None:
    graph = load_bytes(tmp_path, small(), "digits.bin")
    assert (graph.name, graph.source) == ("digits", "digits.bin")
    assert len(graph.sha256) == 64
    assert graph.numerics is Numerics.TFLITE
    assert load(tmp_path / "digits.bin", numerics=Numerics.LITERT).numerics is Numerics.LITERT


def test_steering_tensors_are_left_out(tmp_path: Path) -> None:
    model = ModelBuilder()
    shape = model.tensor("shape", (1,), "int32", data=[-1])
    x, y = model.tensor("x", (2, 3)), model.tensor("y", (6,))
    model.op("RESHAPE", [x, shape], [y])
    graph = load_bytes(tmp_path, model.build([x], [y]))
    assert [tensor.name for tensor in graph.tensors] == ["x", "y"]


def test_a_single_zero_point_serves_all_scales(tmp_path: Path) -> None:
    model = ModelBuilder()
    w = model.tensor("w", (2, 3), "int8", [0.5, 0.25], 0, data=np.ones((2, 3)), axis=0)
    model._tensors[w].zero_point = (0,)
    y = model.tensor("y", (2, 3))
    model.op("DEQUANTIZE", [w], [y])
    graph = load_bytes(tmp_path, model.build([], [y]))
    assert graph.tensors[0].type.quant == Quantization((0.5, 0.25), (0, 0), 0)


def test_scales_of_real_numbers_are_ignored(tmp_path: Path) -> None:
    model = ModelBuilder()
    x, y = model.tensor("x", (2,), "float32", 0.5), model.tensor("y", (2,))
    model.op("RELU", [x], [y])
    assert load_bytes(tmp_path, model.build([x], [y])).tensors[0].type.quant is None


def test_dequantize_of_a_constant_stays_a_node(tmp_path: Path) -> None:
    model = ModelBuilder()
    half = model.tensor("w16", (2, 3), "float16", data=np.ones((2, 3)))
    w, x = model.tensor("w", (2, 3)), model.tensor("x", (1, 3))
    y = model.tensor("y", (1, 2))
    model.op("DEQUANTIZE", [half], [w])
    model.op("FULLY_CONNECTED", [x, w, None], [y])
    graph = load_bytes(tmp_path, model.build([x], [y]))
    assert [type(node.op) for node in graph.nodes] == [Dequantize, FullyConnected]
    assert len(graph.nodes[1].inputs) == 2


def test_a_graph_output_may_appear_twice(tmp_path: Path) -> None:
    model = ModelBuilder()
    x, y = dense(model)
    graph = load_bytes(tmp_path, model.build([x], [y, y]))
    assert graph.outputs[0] == graph.outputs[1]


def test_signature_names_inputs_and_outputs(tmp_path: Path) -> None:
    model = ModelBuilder()
    x, y = dense(model, x_name="serving_default_image:0")
    names = {"image": x, "scores": y}
    graph = load_bytes(tmp_path, model.build([x], [y], names=names))
    assert graph.tensors[graph.inputs[0]].name == "image"
    assert graph.tensors[graph.outputs[0]].name == "scores"


def test_several_subgraphs_are_mentioned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = ModelBuilder()
    x, y = dense(model)
    with caplog.at_level(logging.WARNING):
        load_bytes(tmp_path, model.build([x], [y], copies=3))
    assert caplog.messages == ["net.tflite has 3 subgraphs; only the first is used"]


def test_names_survive_whatever_is_in_them(tmp_path: Path) -> None:
    name = 'ünï\n"*/ \\ \x1b[31m'
    model = ModelBuilder()
    x, y = dense(model, x_name=name)
    graph = load_bytes(tmp_path, model.build([x], [y]))
    assert graph.tensors[graph.inputs[0]].name == name
    assert "\x1b" not in dump(graph)


def buffer_outside_the_tables(offset: int, size: int) -> bytes:
    """A file whose one constant lies behind the flatbuffer, as in files past 2 GiB."""
    model = ModelBuilder()
    c, y = model.tensor("c", (2,), "float32"), model.tensor("y", (2,))
    model.op("RELU", [c], [y])
    usual = model._buffer

    def placed(b: flatbuffers.Builder, data: bytes) -> int:
        if len(calls) == 1:
            tflite.BufferStart(b)
            tflite.BufferAddOffset(b, offset)
            tflite.BufferAddSize(b, size)
            calls.append(1)
            return int(tflite.BufferEnd(b))
        calls.append(1)
        return usual(b, data)

    calls: list[int] = []
    model._buffer = placed  # type: ignore[method-assign]
    return model.build([], [y])


@pytest.mark.parametrize("offset", [4096, (31 << 30) // 10])
def test_constant_behind_the_flatbuffer(
    offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Gigabytes of zeros.
    monkeypatch.setattr("crtexport.importers.tflite.sha256", lambda _: "")
    values = np.array([1.5, -2.0], "<f4").tobytes()
    path = tmp_path / "net.tflite"
    with path.open("wb") as stream:  # what is not written takes no room
        stream.write(buffer_outside_the_tables(offset, 8))
        stream.seek(offset)
        stream.write(values)
    graph = load(path)
    constant = graph.tensors[0].constant
    assert constant is not None
    assert (constant.offset, constant.read()) == (offset, values)


def test_constant_behind_the_end_of_the_file(tmp_path: Path) -> None:
    content = buffer_outside_the_tables(4096, 2**62)
    with pytest.raises(CrtExportError, match="reach past the end of the file"):
        load_bytes(tmp_path, content)


def one(code: str, **options: object) -> Spoil:
    """A file with one operator from x to y, both float (1, 4, 4, 1)."""

    def build(model: ModelBuilder) -> bytes:
        x, y = model.tensor("x", (1, 4, 4, 1)), model.tensor("y", (1, 4, 4, 1))
        model.op(code, [x], [y], **options)
        return model.build([x], [y])

    return build


def conv(**options: object) -> Spoil:
    def build(model: ModelBuilder) -> bytes:
        x, y = model.tensor("x", (1, 4, 4, 1)), model.tensor("y", (1, 4, 4, 1))
        w = model.tensor("w", (1, 1, 1, 1), data=[1])
        model.op("CONV_2D", [x, w, None], [y], **options)
        return model.build([x], [y])

    return build


def typed(dtype: str, **options: object) -> Spoil:
    def build(model: ModelBuilder) -> bytes:
        x, y = model.tensor("x", (2,), **options), model.tensor("y", (2,))
        model._tensors[x].dtype = dtype
        model.op("RELU", [x], [y])
        return model.build([x], [y])

    return build


def shaped(shape: tuple[int, ...], signature: tuple[int, ...]) -> Spoil:
    def build(model: ModelBuilder) -> bytes:
        x, y = model.tensor("x", shape, signature=signature), model.tensor("y", shape)
        model.op("RELU", [x], [y])
        return model.build([x], [y])

    return build


def paddings(model: ModelBuilder, data: object, shape: tuple[int, ...], dtype: str) -> bytes:
    x, y = model.tensor("x", (2,)), model.tensor("y", (2,))
    model.op("PAD", [x, model.tensor("p", shape, dtype, data=data)], [y])
    return model.build([x], [y])


def mean(axis: int) -> Spoil:
    def build(model: ModelBuilder) -> bytes:
        x, y = model.tensor("x", (2, 3)), model.tensor("y", (2,))
        model.op("MEAN", [x, model.tensor("a", (1,), "int32", data=[axis])], [y])
        return model.build([x], [y])

    return build


def wrong_length(model: ModelBuilder) -> bytes:
    x, y = dense(model)
    model._tensors[1].data = b"\1\2"
    return model.build([x], [y])


def bad_input(number: int) -> Spoil:
    def build(model: ModelBuilder) -> bytes:
        y = model.tensor("y", (2,))
        model.op("RELU", [number], [y])
        return model.build([], [y])

    return build


def weights_format(model: ModelBuilder) -> bytes:
    x, y = dense(model, weights_format="SHUFFLED4x16INT8")
    return model.build([x], [y])


def old_schema(model: ModelBuilder) -> bytes:
    x, y = dense(model)
    return model.build([x], [y], schema_version=2)


def no_subgraph(model: ModelBuilder) -> bytes:
    return model.build([], [], copies=0)


def other_options(model: ModelBuilder) -> bytes:
    x, y = model.tensor("x", (1, 4)), model.tensor("y", (1, 4))
    number = model.op("SOFTMAX", [x], [y])
    model._operators[number].options_kind = "ReducerOptions"
    model._operators[number].options = {"keep_dims": True}
    return model.build([x], [y])


def flat_weights(model: ModelBuilder) -> bytes:
    x, y = model.tensor("x", (1, 4, 4, 1)), model.tensor("y", (1, 4, 4, 1))
    w = model.tensor("w", (1, 1), data=[[1]])
    model.op("CONV_2D", [x, w, None], [y])
    return model.build([x], [y])


def patched(change: str, replacement: Callable[..., None]) -> Spoil:
    """The dense layer, written while a function of the schema's module does something else."""

    def build(model: ModelBuilder) -> bytes:
        x, y = dense(model)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tflite, change, replacement)
            return model.build([x], [y])

    return build


usual_dimension = tflite.QuantizationParametersAddQuantizedDimension


def custom_quantization(b: flatbuffers.Builder, axis: int) -> None:
    usual_dimension(b, axis)
    tflite.QuantizationParametersAddDetailsType(b, 1)


def missing_buffer(b: flatbuffers.Builder, _: int) -> None:
    b.PrependUint32Slot(2, 77, 0)


def missing_code(b: flatbuffers.Builder, _: int) -> None:
    b.PrependUint32Slot(0, 5, 0)


def no_union(_: flatbuffers.Builder, __: int) -> None: ...


DAMAGE: dict[str, tuple[Spoil, str]] = {
    "schema": (old_schema, "schema has version 2; only 3"),
    "no subgraph": (no_subgraph, "has no subgraph"),
    "fused tanh": (conv(activation="TANH"), r"operator 0 \(CONV_2D\): the fused activation TANH"),
    "stride 0": (conv(stride=0), "the stride 0 x 0 must be at least 1 x 1"),
    "padding": (conv(padding=7), "the padding 7 is neither SAME nor VALID"),
    "no options": (conv(options_kind=None), "the operator has no Conv2DOptions"),
    "other options": (other_options, "has ReducerOptions instead of SoftmaxOptions"),
    "beta": (one("SOFTMAX", beta=-1.0), "beta must be positive and finite, found -1.0"),
    "weights format": (weights_format, "weights format SHUFFLED4x16INT8 is not supported"),
    "axis": (mean(2), "axis 2 of a tensor with 2 dimensions"),
    "element type": (typed("complex64"), "tensor 0 'x': the element type COMPLEX64"),
    "variable": (typed("float32", variable=True), "graph input 0: tensor 0 'x' is a variable"),
    "dynamic": (shaped((1, -1), (1, -1)), r"tensor 0 'x': the shape \[1, -1\] is dynamic"),
    "dynamic input": (shaped((1, 1, 3), (-1, -1, 3)), r"shape \[-1, -1, 3\] is dynamic"),
    "paddings type": (
        lambda m: paddings(m, [[1.0, 1.0]], (1, 2), "float32"),
        "paddings must be int32 or int64",
    ),
    "paddings shape": (
        lambda m: paddings(m, [0, 0], (2,), "int32"),
        "paddings must be pairs",
    ),
    "paddings unknown": (
        lambda m: paddings(m, None, (1, 2), "int32"),
        r"paddings \(tensor 'p'\) are computed at run time",
    ),
    "paddings long": (
        lambda m: paddings(m, np.zeros((1000, 2)), (1000, 2), "int32"),
        "is no such list",
    ),
    "paddings missing": (one("PAD"), r"input 1 \(paddings\) is missing"),
    "constant": (wrong_length, r"int8\[2x3\] takes 6 bytes, the constant has 2"),
    "tensor number": (bad_input(99), "there is no tensor 99; the file has 1"),
    "negative tensor": (bad_input(-2), "there is no tensor -2; the file has 1"),
    "flat weights": (flat_weights, "the weights must have 4 dimensions"),
    "custom quantization": (
        patched("QuantizationParametersAddQuantizedDimension", custom_quantization),
        "custom quantization is not supported",
    ),
    "buffer": (patched("TensorAddBuffer", missing_buffer), "there is no buffer 77"),
    "code": (
        patched("OperatorAddOpcodeIndex", missing_code),
        "operator 0: there is no operator code 5; the file has 1",
    ),
    "no union": (
        patched("OperatorAddBuiltinOptions", no_union),
        "the operator has no FullyConnectedOptions",
    ),
    "own result": (bad_input(0), "depends on this very operator"),
}


@pytest.mark.parametrize(("spoil", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_what_cannot_be_imported_is_named(spoil: Spoil, message: str, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=message) as caught:
        load_bytes(tmp_path, spoil(ModelBuilder()))
    assert caught.value.location[0] == "net.tflite"


def test_all_unsupported_operators_are_listed_at_once(tmp_path: Path) -> None:
    model = ModelBuilder()
    tensors = [model.tensor(f"t{i}", (2,)) for i in range(5)]
    for i, code in enumerate(("REAL", "RELU", "custom:My\nOp", "REAL")):
        model.op(code, [tensors[i]], [tensors[i + 1]])
    with pytest.raises(CrtExportError) as caught:
        load_bytes(tmp_path, model.build(tensors[:1], tensors[-1:]))
    assert caught.value.problem == (
        "3 operators are not supported:\n"
        "  REAL: operator 0 ('t1'), operator 3 ('t4')\n"
        "  custom 'My\\nOp': operator 2 ('t3')"
    )
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("docs/operators.md lists those that are")


@pytest.mark.parametrize("count", [8, 20, 100, 300])
def test_truncated_file(count: int, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"truncated or damaged|past the end"):
        load_bytes(tmp_path, small()[:count])


def test_a_list_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(small())
    model = tflite.Model.GetRootAs(content, 0)
    offset = model._tab.Vector(model._tab.Offset(8)) - 4
    struct.pack_into("<I", content, offset, 2**31)
    with pytest.raises(CrtExportError, match="claims 2147483648 entries in a file of"):
        load_bytes(tmp_path, bytes(content))


def test_tables_that_share_one_long_list_are_refused(tmp_path: Path) -> None:
    """A thousand operators with the same ten thousand inputs would be ten million."""
    model = ModelBuilder()
    x, y = model.tensor("x", (1,)), model.tensor("y", (1,))
    model.op("CONCATENATION", [x] * 10_000, [y], axis=0)
    with pytest.raises(CrtExportError, match="refer to the same bytes over and over"):
        load_bytes(tmp_path, model.build([x], [y], repeats=1000))


def varied() -> bytes:
    """A little of everything that is read: steering constants, scales per slice, a signature."""
    model = ModelBuilder()
    x = model.tensor("x", (1, 4, 4, 1), "int8", 0.5, 1, signature=(-1, 4, 4, 1))
    p = model.tensor("p", (4, 2), "int32", data=[[0, 0], [1, 0], [0, 1], [0, 0]])
    padded = model.tensor("padded", (1, 5, 5, 1), "int8", 0.5, 1)
    w = model.tensor("w", (2, 2, 2, 1), "int8", [0.5, 0.25], data=np.ones((2, 2, 2, 1)), axis=0)
    b = model.tensor("b", (2,), "int32", [0.25, 0.125], data=[1, 2], axis=0)
    c = model.tensor("c", (1, 3, 3, 2), "int8", 0.5, 1)
    y = model.tensor("y", (1, 18), "int8", 0.5, 1)
    model.op("PAD", [x, p], [padded])
    model.op("CONV_2D", [padded, w, b], [c], padding="SAME", stride=2, activation="RELU")
    model.op("RESHAPE", [c], [y], options_kind=None)
    return model.build([x], [y], names={"image": x, "scores": y})


VARIED = varied()
BYTES = st.binary(min_size=1, max_size=1)
OFFSETS = (0, 1, 4, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)
WORDS = st.sampled_from([struct.pack("<I", offset) for offset in OFFSETS])
CHANGES = st.lists(
    st.tuples(st.integers(0, len(VARIED) - 4), BYTES)
    | st.tuples(st.integers(0, len(VARIED) // 4 - 1).map(lambda word: 4 * word), WORDS),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=CHANGES, length=st.just(len(VARIED)) | st.integers(8, len(VARIED)))
def test_damaged_bytes_give_a_graph_or_an_error(
    changes: list[tuple[int, bytes]], length: int, tmp_path: Path
) -> None:
    content = bytearray(VARIED)
    for position, value in changes:
        content[position : position + len(value)] = value
    content[4:8] = b"TFL3"
    try:
        text = dump(load_bytes(tmp_path, bytes(content[:length])))
    except CrtExportError as error:
        text = str(error)
    assert text
