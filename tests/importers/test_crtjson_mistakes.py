"""Mistakes in model.json: each is named, and any damage ends in an error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from crtexport.importers.crtjson.constants import inline
from crtexport.ir.text import dump
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError
from tests.importers.crtjson_samples import Json, document, load_json, sidecar


def broken_safetensors(folder: Path) -> None:
    (folder / "w.safetensors").write_bytes(b"\xff" * 32)


def other_safetensors(folder: Path) -> None:
    tensors = {
        "weights": np.zeros((2, 3), np.int8),
        "flat": np.zeros(6, np.int8),
        "wide": np.zeros((2, 3), np.uint64),
    }
    save_file(tensors, folder / "w.safetensors")


def short_file(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(5))


def link_to_itself(folder: Path) -> None:
    (folder / "w.bin").symlink_to(folder / "w.bin")


def nothing(_: Path) -> None: ...


SIDECARS: dict[str, tuple[Callable[[Path], None], Json, str]] = {
    "missing": (nothing, {"file": "w.bin"}, "the file 'w.bin': there is no such file"),
    "folder": (nothing, {"file": "."}, "this is a directory"),
    "null": (nothing, {"file": "a\0"}, "is no usable file name"),
    "loop": (link_to_itself, {"file": "w.bin"}, "no usable file name|Too many levels"),
    "short": (short_file, {"file": "w.bin"}, "bytes 0 to 6 of 'w.bin', which has only 5"),
    "far": (short_file, {"file": "w.bin", "offset": 2**62}, "which has only 5"),
    "nbytes": (short_file, {"file": "w.bin", "nbytes": 5}, "takes 6 bytes, found nbytes 5"),
    "both": (
        other_safetensors,
        {"file": "w.safetensors", "tensor": "weights", "offset": 1},
        "either 'tensor' or 'offset' and 'nbytes'",
    ),
    "damaged": (
        broken_safetensors,
        {"file": "w.safetensors", "tensor": "w"},
        "w.safetensors: not a readable .safetensors file",
    ),
    "name": (
        other_safetensors,
        {"file": "w.safetensors", "tensor": "weihgts"},
        "has no tensor 'weihgts'\n  hint: did you mean 'weights'",
    ),
    "shape": (
        other_safetensors,
        {"file": "w.safetensors", "tensor": "flat"},
        r"'flat' in 'w.safetensors' is int8\[6\], expected int8\[2x3\]",
    ),
    "dtype": (other_safetensors, {"file": "w.safetensors", "tensor": "wide"}, "of an unknown type"),
}


@pytest.mark.parametrize(("prepare", "data", "message"), SIDECARS.values(), ids=SIDECARS.keys())
def test_sidecar_that_cannot_be_used(
    prepare: Callable[[Path], None], data: Json, message: str, tmp_path: Path
) -> None:
    prepare(tmp_path)
    with pytest.raises(CrtExportError) as caught:
        load_json(tmp_path, sidecar(data))
    caught.match(r"model.json → tensors\[1\] 'w'")
    assert re.search(message, str(caught.value))


def change(path: str, value: object) -> Json:
    """The document with ``tensors.0.name`` or the like set; None removes."""
    result = document()
    *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    inner: Any = result
    for parent in parents:
        inner = inner[parent] if isinstance(inner, list) else inner.setdefault(parent, {})
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return result


UNARY = {"op": "Relu", "inputs": ["x"], "outputs": ["y"]}
MISTAKES: dict[str, tuple[Json | str, str]] = {
    "syntax": ('{"format": "crtexport-model",\n  "version" 1}', "not valid JSON: .* line 2"),
    "utf-8": ('{"format": "\udc80"}', "not valid JSON"),
    "deep": ('{"a":' + "[" * 100_000, "not valid JSON: nested too deeply"),
    "other json": ({"class_name": "Model"}, "this JSON file is not a crtexport model"),
    "version": (change("version", 2), "version 1 of the format can be read, found 2"),
    "no version": (change("version", None), "version 1 of the format can be read, found none"),
    "key": (change("tensors.0.shap", 1), r"tensors\[0\].shap: unknown key 'shap'.*mean 'shape'"),
    "misspelt key": (
        {**change("inputs", None), "input": ["x"]},
        "input: unknown key 'input'.*did you mean 'inputs'.*1 more such problem",
    ),
    "top key": (change("input", []), "input: unknown key 'input'.*did you mean 'inputs'"),
    "quantization key": (
        change("tensors.0.quantization.zeropoint", 1),
        r"tensors\[0\].quantization.zeropoint: unknown key .* did you mean 'zero_point'",
    ),
    "file key": (
        change("tensors.1.data", {"file": "w.bin", "ofset": 1}),
        r"tensors\[1\].data.ofset: unknown key 'ofset'.*did you mean 'offset'",
    ),
    "attribute": (
        change("nodes.0.attributes", {"activaton": "relu"}),
        r"nodes\[0\].attributes.activaton: unknown key 'activaton'.*did you mean 'activation'",
    ),
    "nested attribute": (
        change("nodes.0", {**UNARY, "op": "Conv2D", "attributes": {"padding": {"topp": 1}}}),
        r"nodes\[0\].attributes.padding.topp: unknown key 'topp'.*did you mean 'top'",
    ),
    "no attributes": (
        change("nodes.0", {**UNARY, "attributes": {"alpha": 1}}),
        r"unknown key 'alpha'.*there are no keys here",
    ),
    "activation": (
        change("nodes.0.attributes", {"activation": "relu7"}),
        r"nodes\[0\].attributes.activation: 'relu7' is none of 'none', .*mean 'relu'",
    ),
    "op": (change("nodes.0.op", "FullyConected"), r"'FullyConected': nodes\[0\] \(did you mean"),
    "no op": (change("nodes.0.op", None), r"nodes\[0\].op: this key is missing"),
    "missing": (change("tensors.0.dtype", None), r"tensors\[0\].dtype: this key is missing"),
    "dtype": (change("tensors.0.dtype", "int9"), "did you mean 'int8'"),
    "string": (
        change("tensors.0.shape", ["3"]), r"tensors\[0\].shape\[0\]: expected `int`, found '3'"
    ),
    "negative": (change("tensors.0.shape", [-1, 3]), r"shape\[0\]: expected `int` >= 0, found -1"),
    "long number": (change("tensors.0.shape", [10**4200]), r"shape\[0\]"),
    "longer number": (
        json.dumps(document()).replace("[1, 3]", "[" + "9" * 5000 + "]"),
        "not valid JSON: Integer value out of range$",
    ),
    "scale": (
        change("tensors.0.quantization.scale", math.inf),
        "not valid JSON: invalid character at line 1, column 1",
    ),
    "zero scale": (change("tensors.0.quantization.scale", 0), "scale 0.0 is not positive"),
    "twice": (change("tensors.2.name", "w"), r"tensors\[2\].name: a second tensor is called 'w'"),
    "input name": (
        change("nodes.0.inputs", ["xx", "w"]),
        r"nodes\[0\].inputs\[0\]: there is no tensor 'xx'.*did you mean 'x'",
    ),
    "graph output": (change("outputs", ["z"]), r"outputs\[0\]: there is no tensor 'z'"),
    "no output": (change("outputs", []), "the graph has no output"),
    "few": (change("tensors.1.data", [1, 2]), r"int8\[2x3\] has 6 elements, found 2"),
    "nesting": (change("tensors.1.data", [[1, 2], [3, 4], [5, 6]]), "nested like the shape"),
    "mixed": (change("tensors.1.data", [1, [2]]), "nested like the shape"),
    "range": (change("tensors.1.data", [1, 2, 3, 4, 5, 128]), "not every element is a int8"),
    "real": (change("tensors.1.data", [1, 2, 3, 4, 5, 6.0]), "not every element is a int8"),
    "truth": (change("tensors.1.data", [1, 2, 3, 4, 5, True]), "not every element is a int8"),
    "text": (change("tensors.1.data", "weights"), "data: expected .* found 'weights'"),
    "number": (change("tensors.1.data", 7), "has 6 elements, found 1"),
}


@pytest.mark.parametrize(("content", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistake_is_named_with_its_place(content: Json | str, message: str, tmp_path: Path) -> None:
    if isinstance(content, dict):
        content = json.dumps(content)
    with pytest.raises(CrtExportError) as caught:
        load_json(tmp_path, content.encode("utf-8", "surrogateescape"))
    assert caught.value.location[0] == "model.json"
    text = str(caught.value).replace("\n", " ")
    assert re.search(message, text), text


@pytest.mark.parametrize(
    ("value", "message"),
    [(1e39, "out of the range of float32"), (10**400, "out of the range"), (True, "not every")],
)
def test_float_that_does_not_fit(value: object, message: str) -> None:
    with pytest.raises(CrtExportError, match=message):
        inline([value], TensorType(DType.FLOAT32, (1,)))


def test_all_unknown_operators_are_listed_at_once(tmp_path: Path) -> None:
    wrong = document()
    wrong["nodes"] += [{"op": "Relo"}, {"op": "Gelu!"}, {"op": "Relo"}]
    with pytest.raises(CrtExportError) as caught:
        load_json(tmp_path, wrong)
    assert caught.value.problem == (
        "3 operators are not supported:\n"
        "  'Relo': nodes[1], nodes[3] (did you mean 'Relu'?)\n"
        "  'Gelu!': nodes[2] (did you mean 'Gelu'?)"
    )


def test_more_mistakes_are_counted(tmp_path: Path) -> None:
    wrong = document()
    wrong["tensors"][0]["x"] = wrong["tensors"][0]["shapes"] = wrong["tensors"][2]["y"] = 1
    with pytest.raises(CrtExportError, match=r"2 more such problems in this file"):
        load_json(tmp_path, wrong)


def test_huge_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtexport.importers.crtjson.reading.MAX_TEXT", 100)
    with pytest.raises(CrtExportError, match="bytes of JSON are too many; 100 is the most"):
        load_json(tmp_path, document())


TEXT = json.dumps(document()).encode()
PIECES = [b'"', b"{", b"[", b"null", b"-1", b"1e999", b"\\ud800", b"\xff", b"9" * 30, b'"file"']


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(
        st.tuples(
            st.integers(1, len(TEXT) - 1),
            st.integers(0, 6),
            st.sampled_from(PIECES) | st.binary(max_size=2),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_damaged_text_gives_a_graph_or_an_error(
    changes: list[tuple[int, int, bytes]], tmp_path: Path
) -> None:
    content = TEXT
    for start, length, piece in changes:
        content = content[:start] + piece + content[start + length :]
    try:
        text = dump(load_json(tmp_path, content))
    except CrtExportError as error:
        text = str(error)
    assert text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["file", "tensor", "scale", "op", "top"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(p for key, inner in items for p in places(inner, (*path, key)))]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(places(document())[1:]), value=VALUES)
def test_any_value_anywhere_gives_a_graph_or_an_error(
    place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    content: Any = document()
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    try:
        text = dump(load_json(tmp_path, content))
    except CrtExportError as error:
        text = str(error)
    assert text
