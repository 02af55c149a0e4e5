"""Damaged files, and networks that can't be exported: a sentence with the node's name."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.importers.formats import InputChoices
from crtexport.support.errors import CrtExportError
from tests.importers.onnx.test_layout import CLASSIFIER
from tests.importers.onnx.writer import (
    block,
    external,
    function,
    graph,
    model,
    node,
    number,
    value,
    varint,
)

X = value("x", [2, 3])
NUMBERS = {
    "step": np.array(2, np.int64), "long": np.array(9, np.int64), "w": np.ones((1, 1, 2, 2), "f4"),
    "bytes": np.ones((2, 200, 20, 20), np.uint8), "most": np.array(3, np.int64),
    "two": np.array(2, np.float32),
}


def shaped(
    operator: str, *inputs: str, shapes: dict[str, list[int]], dtype: str = "float32", **more: Any
) -> bytes:
    """A network of one node, "it", with inputs of these shapes, and constants."""
    return model(graph(
        [node(operator, inputs, ["y"], name="it", **more)],
        [value(name, shape, dtype) for name, shape in shapes.items()], ["y"], NUMBERS,
    ), version=22)


def one(
    operator: str, *inputs: str, outputs: int = 1,
    constants: dict[str, npt.NDArray[Any]] | None = None, **more: Any,
) -> bytes:
    """A network of one node, "it"."""
    names = [f"y{i}" for i in range(outputs)]
    made = node(operator, inputs or ("x",), names, name="it", **more)
    return model(graph([made], [X, value("n", [2], "int64")], names, constants))


FOLDER = model(graph([node("Relu", ["w"], ["y"])], [], ["y"], more=[
    external("w", [4], {"location": "../w.bin", "offset": "0", "length": "16"})
]))
MISSING = model(graph([node("Relu", ["w"], ["y"])], [], ["y"], more=[
    external("w", [4], {"location": "w.bin"})
]))
LONG = model(graph([node("Relu", ["w"], ["y"])], [], ["y"], more=[
    external("w", [4], {"location": "m.onnx", "offset": "1000000"})
]))
CALLS_ITSELF = model(
    graph([node("F", ["x"], ["y"], domain="mine", name="it")], [X], ["y"]),
    functions=[function("F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="mine")])],
    domains=["mine"],
)
SEQUENCE = model(graph(
    [node("Relu", ["x"], ["y"])], [block(1, "x") + block(2, block(4, b""))], ["y"]
))

BODY = graph(
    [node("Identity", ["c"], ["d"]), node("Relu", ["s"], ["t"])],
    [value("i", [], "int64"), value("c", [], "bool"), value("s", [2, 3])], ["d", "t"],
)

GATHERING = graph(
    [node("Identity", ["c"], ["d"]), node("Relu", ["s"], ["t"]), node("Abs", ["s"], ["u"])],
    [value("i", [], "int64"), value("c", [], "bool"), value("s", [2, 3])], ["d", "t", "u"],
)

GROWING = graph(
    [node("Identity", ["c"], ["d"]), node("Concat", ["s", "s"], ["t"], axis=0),
     node("Abs", ["s"], ["u"])],
    [value("i", [], "int64"), value("c", [], "bool"), value("s", ["rows", 3])], ["d", "t", "u"],
)

REFUSED: dict[str, tuple[bytes, str]] = {
    "a loop whose results differ in shape": (
        one("Loop", "count", "", "x", body=GROWING, outputs=2,
            constants={"count": np.array(3, np.int64)}),
        "what a loop gives has another shape in each step",
    ),
    "a loop whose number of steps, computed, is a size": (
        model(graph(
            [node("Loop", ["n", "", "x"], ["s", "y"], body=GATHERING)],
            [X, value("n", [], "int64")], ["y"],
        )), r"node 0 \(Loop\): the size of an output depends on how often a loop runs"
    ),
    "an equation with more letters than axes": (
        one("Einsum", "x", equation="abc->a"), r"the equation 'abc->a' for \[\(2, 3\)\]"
    ),
    "a float without a number": (
        model(graph([node("Elu", ["x"], ["y"]) + block(5, block(1, "alpha") + block(2, b""))],
                    [X], ["y"])),
        r"damaged: field 2 has no number",
    ),
    "a loop without an end": (
        one("Loop", "", "", "x", body=BODY), r"a loop of more than 1024 steps"
    ),
    "a sequence without an axis of batches": (
        one("GRU", "x", "x", "x"), r"the input and its weights must have 3 dimensions"
    ),
    "frames longer than the signal": (
        shaped("STFT", "x", "step", "", "long", shapes={"x": [1, 8, 1]}),
        "frames of 9 samples, 2 apart, of 8",
    ),
    "one side of a complex spectrum": (
        shaped("STFT", "x", "step", "", "step", shapes={"x": [1, 8, 2]}), "one side of a DFT of 2",
    ),
    "sums of groups that floats don't hold": (
        shaped("ConvInteger", "x", "bytes", shapes={"x": [1, 400, 21, 21]}, dtype="uint8", group=2),
        "2 groups of 200 channels: their sums exceed 24 bits",
    ),
    "offsets that don't fit": (
        shaped("DeformConv", "x", "w", "o", shapes={"x": [1, 1, 4, 4], "o": [1, 6, 3, 3]}),
        r"1 groups and 1 groups of offsets \(1, 6, 3, 3\)",
    ),
    "no groups of offsets": (
        shaped("DeformConv", "x", "w", "o", shapes={"x": [1, 1, 4, 4], "o": [1, 8, 3, 3]},
               offset_group=0), "1 groups and 0 groups of offsets",
    ),
    "weights of another rank": (
        shaped("Conv", "x", "w", shapes={"x": [1, 1, 4]}), r"weights \(1, 1, 2, 2\) for an input",
    ),
    "an overlap of more than all": (
        shaped("NonMaxSuppression", "b", "s", "most", "two",
               shapes={"b": [1, 5, 4], "s": [1, 2, 5]}), "overlaps of 2",
    ),
    "boxes and scores that don't fit": (
        shaped("NonMaxSuppression", "b", "s", "most", shapes={"b": [1, 5, 4], "s": [1, 2, 6]}),
        r"scores must be \(1, classes, 5\)",
    ),
    "shapes that don't fit": (
        shaped("Add", "a", "b", shapes={"a": [2, 3], "b": [2, 4]}),
        r"'it' \(Add\): its inputs \[2, 3\], \[2, 4\] or its attributes don't fit each other",
    ),
    "an unknown operator": (
        one("Foo", domain="bar"), r"'it' \(Foo\): Foo of domain bar, opset 1: the operator is not",
    ),
    "a misspelt operator": (one("Relo"), r"Relo opset 17: .*not supported\n  hint: nearest: Relu"),
    "a shape by data": (one("NonZero"), r"'it' \(NonZero\).* depends on data"),
    "a sequence": (one("SequenceConstruct"), "sequences have no fixed size"),
    "an input that is a sequence": (SEQUENCE, "input 'x': it is no tensor, but sequence"),
    "an unknown attribute": (one("Relu", color=3), r"'it' \(Relu\): the attribute 'color' is not"),
    "an attribute of another kind": (one("Elu", alpha="x"), "attribute alpha must be a float"),
    "a computed shape": (
        one("Reshape", "x", "n"), r"the shape \('n'\) must be constant, but is computed",
    ),
    "a computed size": (
        one("Resize", "x", "", "n"), r"scales, sizes and region \('n'\) must be constant",
    ),
    "a scale below zero": (
        one("Resize", "x", "", "s", constants={"s": np.array([-2, 1], np.float32)}),
        r"'it' \(Resize\): scales \[-2.0, 1.0\] for 2 axes",
    ),
    "an unknown way to resize": (
        one("Resize", "x", "", "n", mode="lanczos"), "the mode 'lanczos'\n.*known are nearest",
    ),
    "too many inputs": (one("Relu", "x", "x"), "expected 1 inputs, found 2"),
    "a missing input": (one("Add", "x", ""), "expected 2 inputs, found 1"),
    "types that differ": (one("Add", "x", "n"), "differ in type: float32 and int64"),
    "a cycle": (
        model(graph([node("Add", ["x", "b"], ["a"], name="it"), node("Relu", ["a"], ["b"])],
                    [X], ["b"])),
        r"'it' \(Add\): the tensor 'b' is used before anything computes it",
    ),
    "a name twice": (
        model(graph([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])], [X], ["y"])),
        "the tensor 'y' is computed a second time",
    ),
    "a function that calls itself": (CALLS_ITSELF, "nested more than 24 deep"),
    "data outside of the folder": (FOLDER, r"initializer 'w': .* is outside of the model's folder"),
    "data that is not there": (MISSING, "initializer 'w': .*there is no such file|no such file"),
    "data past a file's end": (LONG, "initializer 'w': .* reach past the end"),
    "too few elements": (
        model(graph([node("Relu", ["w"], ["y"])], [], ["y"], more=[
            number(1, 3) + number(2, 1) + block(8, "w") + block(9, bytes(8))
        ])), r"initializer 'w': float32\[3\] takes 12 bytes, the file has 8",
    ),
    "a tensor of strings": (
        model(graph([node("Relu", ["w"], ["y"])], [], ["y"], more=[
            number(1, 1) + number(2, 8) + block(8, "w") + block(6, "text")
        ])), "the element type string is not supported",
    ),
    "a huge tensor": (
        model(graph([node("Relu", ["x"], ["y"])], [value("x", [1 << 40, 1 << 40])], ["y"])),
        "input 'x': a tensor of more than",
    ),
    "an open dimension": (
        model(graph([node("Relu", ["x"], ["y"])], [value("x", [1, "time"])], ["y"])),
        r"input 'x': dimension 1 \(time\) is open\n  hint: fix it with --dim time=N",
    ),
    "no shape": (
        model(graph([node("Relu", ["x"], ["y"])], [value("x", None)], ["y"])),
        "input 'x': its shape is not in the file",
    ),
    "an opset that is too old": (
        model(graph([node("Relu", ["x"], ["y"])], [X], ["y"]), version=5), "Relu is of opset 5; 6",
    ),
    "an axis of opset 6 that is too large": (
        model(graph([node("Add", ["x", "x"], ["y"], axis=1, broadcast=1)], [X], ["y"]), version=6),
        r"the axis is too large for \(2, 3\) and \(2, 3\)",
    ),
    "training in opset 6": (
        model(graph([node("Dropout", ["x"], ["y"])], [X], ["y"]), version=6),
        "training is not supported",
    ),
    "an IR version that is too old": (
        model(graph([], [X], ["x"]), ir_version=2), "IR version 2; 3 and later",
    ),
    "no graph": (number(1, 9) + block(2, "p"), "the file has no graph"),
    "a length that lies": (
        number(1, 9) + varint(7 << 3 | 2) + varint(1 << 40) + b"abc", "a field of 1099511627776",
    ),
    "graphs without an end": (
        number(1, 9) + block(2, "") + b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
        "a number that doesn't end",
    ),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_can_not_be_exported_is_said_in_a_sentence(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(CrtExportError) as caught:
        load(path)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert str(caught.value).startswith("m.onnx"), "the file is named"


@pytest.mark.parametrize(("choices", "message"), [
    (InputChoices(dims={"time": 3}), "--dim: the network has no open dimension 'time'"),
    (InputChoices(shapes={"z": [1]}), "--input-shape: the network has no input 'z'"),
    (InputChoices(shapes={"x": [2, 4]}), r"shape \[2, 4\] doesn't fit the file's \[2, 3\]"),
    (InputChoices(values={"x": Path("x.npy")}), "x.npy: the file's shape is"),
    (InputChoices(values={"x": Path("i.npy")}), "the file has int64, the input is float32"),
    (InputChoices(values={"x": Path("m.onnx")}), "this is no .npy file"),
])
def test_choices_that_do_not_fit_are_refused(
    choices: InputChoices, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((3, 2), np.float32))
    np.save("i.npy", np.zeros((2, 3), np.int64))
    Path("m.onnx").write_bytes(model(graph([node("Relu", ["x"], ["y"])], [X], ["y"])))
    with pytest.raises(CrtExportError, match=message):
        load(Path("m.onnx"), choices=choices)


def test_choices_are_for_onnx_files_only(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("{}")
    with pytest.raises(CrtExportError, match="are for ONNX files"):
        load(path, choices=InputChoices(dims={"n": 1}))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_are_refused_or_read_but_nothing_else_happens(
    data: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray(CLASSIFIER)
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(3, len(content)))]
    # The structure comes before and after the weights: mostly change that.
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, min(400, len(content) - 1)))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with contextlib.suppress(CrtExportError):
        load(path)
