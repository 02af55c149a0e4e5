"""model.json: what a graph becomes and back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace
from safetensors.numpy import load_file, save_file

from crtexport.importers import load
from crtexport.importers.crtjson import save, schema
from crtexport.importers.crtjson.attributes import OPERATORS, attributes_model, decode, encode
from crtexport.importers.crtjson.constants import inline, to_inline
from crtexport.importers.crtjson.safetensors_file import read_entries
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.numerics import Numerics
from crtexport.ir.ops import Activation, Conv2D, FullyConnected, Op, Pad, Padding2D, Relu
from crtexport.ir.text import dump
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import decode_json
from tests.helpers import FLOAT_NETWORKS, INT8_NETWORKS, shared_model
from tests.importers.crtjson_samples import document, load_json, sidecar


def same(a: Graph, b: Graph) -> bool:
    """Equal but for where they come from and where constants' bytes lie."""

    def without_places(graph: Graph) -> Graph:
        tensors = tuple(
            t
            if t.constant is None
            else replace(t, constant=ConstantRef(t.constant.nbytes, t.constant.read()))
            for t in graph.tensors
        )
        return replace(graph, tensors=tensors, source="", sha256="")

    return without_places(a) == without_places(b)


def test_written_by_hand(tmp_path: Path) -> None:
    graph = load_json(tmp_path, document(), numerics=Numerics.LITERT)
    assert (graph.name, graph.source, graph.numerics) == ("model", "model.json", Numerics.LITERT)
    assert graph.nodes == (Node(FullyConnected(), (0, 1), (2,), "", "nodes[0] (FullyConnected)"),)
    assert graph.type(1).quant == Quantization((0.5, 0.25), (0, 0), 0)


def test_byte_order_mark_and_blank_lines_are_fine(tmp_path: Path) -> None:
    graph = load_json(tmp_path, b"\xef\xbb\xbf\n  " + json.dumps(document()).encode())
    assert len(graph.nodes) == 1


@pytest.mark.models
@pytest.mark.parametrize("name", [*INT8_NETWORKS, *FLOAT_NETWORKS])
def test_reference_network_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    graph = load(shared_model(name))
    path = tmp_path / "model.json"
    save(graph, path)
    again = load(path)
    assert same(graph, again)
    assert dump(graph) == dump(again)
    files = sorted(tmp_path.iterdir())
    before = [file.read_bytes() for file in files]
    save(again, path)  # over the very file that its constants come from
    assert [file.read_bytes() for file in sorted(tmp_path.iterdir())] == before


def tricky() -> Graph:
    """Names that repeat, are empty or reserved, contain anything; shared and special constants."""
    names = ["a", "a", "a#2", "", "", '"\n\\*/ü\x1b', "__metadata__"]
    real = TensorType(DType.FLOAT32, (32,))
    shared = ConstantRef.of(np.arange(32, dtype=np.float32))
    nans = np.array([math.nan, math.inf, -math.inf, 0.0], np.float32)
    tensors = [
        Tensor(names[0], real),
        Tensor(names[1], real, shared),
        Tensor(names[2], real, shared),
        Tensor(names[3], TensorType(DType.FLOAT32, (4,)), ConstantRef.of(nans)),
        Tensor(names[4], TensorType(DType.FLOAT16, ()), ConstantRef(2, b"\1\0")),
        Tensor(names[5], TensorType(DType.INT64, (1,)), ConstantRef(8, b"\xff" * 7 + b"\x7f")),
        Tensor(names[6], real, ConstantRef.of(np.ones(32, np.float32))),
        Tensor("y", real),
    ]
    node = Node(Relu(), (0,), (7,), "node", "")
    scales = (float(np.float32(0.1)), 2.0**-100)
    per_slice = TensorType(DType.UINT8, (2,), Quantization(scales, (3, 4), 0))
    tensors.append(Tensor("z", per_slice, ConstantRef(2, b"\0\xff")))
    return Graph("g", tuple(tensors), (node,), (0,), (7,))


def test_any_names_and_values_survive(tmp_path: Path) -> None:
    graph = tricky()
    save(graph, tmp_path / "m.json")
    assert same(graph, load(tmp_path / "m.json"))


def test_scales_are_the_float32_numbers_that_kernels_use(tmp_path: Path) -> None:
    text = json.dumps({
        "format": "crtexport-model", "version": 1, "name": "m", "inputs": ["x"], "outputs": ["y"],
        "tensors": [
            {"name": "x", "dtype": "int8", "shape": [2], "quantization": {"scale": 0.05}},
            {"name": "y", "dtype": "int8", "shape": [2], "quantization": {"scale": 0.05}},
        ],
        "nodes": [{"op": "Relu", "inputs": ["x"], "outputs": ["y"]}],
    })
    (tmp_path / "m.json").write_text(text)
    quant = load(tmp_path / "m.json").type(0).quant
    assert quant is not None
    assert quant.scale == (float(np.float32(0.05)),)


def test_sidecar_is_a_proper_safetensors_file_without_copies(tmp_path: Path) -> None:
    save(tricky(), tmp_path / "m.json")
    stored = load_file(tmp_path / "m.safetensors")
    assert sorted(stored) == ["", "__metadata__#2", "a#3"]
    assert stored["a#3"].tolist() == list(range(32))


def test_small_graph_needs_no_sidecar(tmp_path: Path) -> None:
    save(load_json(tmp_path, document()), tmp_path / "again.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.json", "model.json"]


def test_saved_text_is_readable(tmp_path: Path) -> None:
    save(load_json(tmp_path, document()), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text().splitlines()[8] == (
        '    {"name": "w", "dtype": "int8", "shape": [2, 3],'
        ' "quantization": {"scale": [0.5, 0.25], "axis": 0}, "data": [1, 2, 3, -4, -5, -6]},'
    )


def test_attributes_with_defaults_are_left_out() -> None:
    assert encode(Conv2D()) == {}
    op = Conv2D(stride=(2, 1), padding=Padding2D(left=3), activation=Activation.RELU6)
    assert encode(op) == {"stride": [2, 1], "padding": {"left": 3}, "activation": "relu6"}
    assert encode(Pad(((0, 1), (2, 3)))) == {"paddings": [[0, 1], [2, 3]]}


@settings(deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(OPERATORS)))
def test_every_operator_survives(data: st.DataObject, name: str) -> None:
    op = data.draw(st.from_type(OPERATORS[name]).filter(finite))
    model = decode_json(attributes_model(type(op)), json.dumps(encode(op)).encode())
    assert decode(type(op), model) == op


def finite(op: Op) -> bool:
    def small(value: object) -> bool:
        if isinstance(value, tuple):
            return all(map(small, value))
        if isinstance(value, Padding2D):
            return all(small(getattr(value, side)) for side in ("top", "bottom", "left", "right"))
        return not isinstance(value, int | float) or abs(value) < 2**31

    return all(small(value) for value in asdict(op).values())


@given(bits=st.lists(st.integers(0, 2**32 - 1), max_size=8))
def test_inline_floats_keep_every_bit(bits: list[int]) -> None:
    raw = np.array(bits, "<u4").tobytes()
    type_ = TensorType(DType.FLOAT32, (len(bits),))
    values = to_inline(ConstantRef(len(raw), raw), type_)
    if values is None:
        assert not np.isfinite(np.frombuffer(raw, "<f4")).all()
    else:
        assert inline(json.loads(json.dumps(values)), type_).read() == raw


def test_inline_half_floats_keep_every_bit() -> None:
    every = np.arange(2**16, dtype="<u2")
    every = every[np.isfinite(every.view("<f2"))]
    type_ = TensorType(DType.FLOAT16, every.shape)
    values = to_inline(ConstantRef(every.nbytes, every.tobytes()), type_)
    assert inline(values, type_).read() == every.tobytes()
    assert to_inline(ConstantRef.of(np.array([0.1], "<f2")), TensorType(DType.FLOAT16, (1,))) == [
        0.1
    ]


def test_raw_sidecar(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(range(20)))
    graph = load_json(tmp_path, sidecar({"file": "w.bin", "offset": 4, "nbytes": 6}))
    constant = graph.tensors[1].constant
    assert constant is not None
    assert constant.data is None
    assert constant.read() == bytes(range(4, 10))


def test_safetensors_sidecar(tmp_path: Path) -> None:
    save_file(
        {"first": np.ones(5, np.float32), "w": np.arange(6, dtype=np.int8).reshape(2, 3)},
        tmp_path / "w.safetensors",
        metadata={"made": "by a test"},
    )
    graph = load_json(tmp_path, sidecar({"file": "w.safetensors", "tensor": "w"}))
    constant = graph.tensors[1].constant
    assert constant is not None
    assert constant.read() == bytes(range(6))


def test_sidecar_outside_of_the_folder_only_when_allowed(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(6))
    (inside / "link.bin").symlink_to(tmp_path / "w.bin")
    for name in ("../w.bin", str(tmp_path / "w.bin"), "link.bin"):
        with pytest.raises(CrtExportError, match="lies outside of the model's folder"):
            load_json(inside, sidecar({"file": name}))
        assert load_json(inside, sidecar({"file": name}), allow_outside=True)


def test_booleans_are_written_as_such() -> None:
    type_ = TensorType(DType.BOOL, (2,))
    assert inline([True, False], type_).read() == b"\1\0"
    with pytest.raises(CrtExportError, match="not every element is a bool"):
        inline([1, 0], type_)


def test_unwritable_output(tmp_path: Path) -> None:
    graph = load_json(tmp_path, document())
    with pytest.raises(CrtExportError, match="can't be written: No such file or directory"):
        save(graph, tmp_path / "missing" / "model.json")
    with pytest.raises(CrtExportError, match=r"can't be called \.safetensors"):
        save(graph, tmp_path / "model.safetensors")
    with pytest.raises(CrtExportError, match="can't be written as UTF-8"):
        save(replace(graph, name="\ud800"), tmp_path / "again.json")
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_failed_saving_leaves_the_old_files(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    save(tricky(), path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    gone = ConstantRef(nbytes=128, path=tmp_path / "gone.bin")
    tensor = replace(tricky().tensors[1], constant=gone)
    graph = replace(tricky(), tensors=(tricky().tensors[0], tensor, *tricky().tensors[2:]))
    with pytest.raises(CrtExportError, match="can't be written: No such file"):
        save(graph, path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_read_entries_gives_places_in_the_file(tmp_path: Path) -> None:
    save_file({"a": np.arange(4, dtype=np.int16)}, tmp_path / "a.safetensors")
    entry = read_entries(tmp_path / "a.safetensors")["a"]
    assert (entry.dtype, entry.shape) == (DType.INT16, (4,))
    assert entry.constant.read() == np.arange(4, dtype="<i2").tobytes()


def test_schema_knows_every_operator_and_key() -> None:
    text = json.dumps(schema())
    assert json.loads(text)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {f"{name}Node" for name in OPERATORS} <= set(schema()["$defs"])
    assert set(schema()["required"]) == {
        "format", "version", "inputs", "outputs", "tensors", "nodes"
    }  # fmt: skip
    assert "$schema" in schema()["properties"]
