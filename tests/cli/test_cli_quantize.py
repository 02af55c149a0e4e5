"""``crtexport quantize`` writes what the library calibrates, and measures its error."""

from __future__ import annotations

import json
import re
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from crtexport import package_actions
from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.importers.formats import NO_CHOICES
from crtexport.importers.onnx.constants import tensor_constant
from crtexport.pipeline import driver
from crtexport.quantization.cost import BoardCost, QuantizedCost, compare
from crtexport.quantization.quantize import Correction, QuantizeResult, quantize
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import find_runtime
from crtexport.support.errors import CrtExportError, ToolMissingError
from tests.helpers import require, require_environment, require_exact_products
from tests.importers.onnx.writer import Array, graph, model, node, value
from tests.onnx.suite import model_of
from tests.quantization.network import INPUT, WIDE, constants, images, write

SAMPLES = 24


@pytest.fixture(autouse=True, scope="module")
def _library() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRTEXPORT_ONNX_PYTHON", require_environment("onnx", "onnxruntime", "onnx"))
        yield


Quantize = Callable[..., QuantizeResult]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The float network and its data."""
    place = tmp_path_factory.mktemp("quantized")
    write(place / "net.onnx")
    np.savez(place / "data.npz", image=images(SAMPLES))
    return place


@pytest.fixture(scope="module")
def quantized(folder: Path) -> Quantize:
    """Quantizes the network, each time with a name of its own."""
    made: dict[str, QuantizeResult] = {}

    def do(**options: Any) -> QuantizeResult:
        name = re.sub(r"\W+", "_", repr(sorted(options.items())))
        if name not in made:
            made[name] = quantize(
                folder / "net.onnx", folder / "data.npz", folder / f"{name}.onnx", **options
            )
        return made[name]

    return do


def outputs(path: Path, data: Array) -> Array:
    with ReferenceModel(path, runtime=find_runtime("onnxruntime")) as runtime:
        return np.stack([runtime.run([row])[0] for row in data]).astype(np.float64)


def decibels(exact: Array, found: Array) -> float:
    return float(10 * np.log10(np.square(exact).sum() / np.square(exact - found).sum()))


@pytest.mark.parametrize("options", [
    {}, {"format": "qoperator", "activations": "int8", "calibration": "percentile"},
])
def test_the_outputs_error_is_that_of_the_written_file(
    options: dict[str, str], quantized: Quantize, folder: Path
) -> None:
    result = quantized(**options)
    data = images(SAMPLES)
    exact, found = outputs(folder / "net.onnx", data), outputs(result.path, data)
    (error,) = result.outputs
    assert error.output == "scores"
    assert error.sqnr == pytest.approx(decibels(exact, found), abs=1e-3)
    channels = [decibels(exact[..., i], found[..., i]) for i in range(exact.shape[-1])]
    assert error.channel == int(np.argmin(channels))
    assert error.channel_sqnr == pytest.approx(min(channels), abs=1e-3)


def test_weights_are_symmetric_int8_with_a_scale_per_channel(quantized: Quantize) -> None:
    """Of the first convolution, whose weights have the normalization's factors."""
    path = quantized(corrections=False).path
    found = constants()
    factor = found["scale"] / np.sqrt(found["variance"] + np.float32(0.01))
    folded = found["w0"] * factor[:, None, None, None]
    expected = np.abs(folded).max(axis=(1, 2, 3)) / 127
    stored = [
        tensor_constant(tensor, path, allow_outside=False)
        for tensor in model_of(path).initializers
        if tensor.name.endswith("_scale") and tensor.dims == (6,)
    ]
    scales = [constant.array(type_) for type_, constant in stored]
    assert any(np.allclose(scale, expected, rtol=1e-6) for scale in scales)


def test_every_layer_of_the_network_has_integers(quantized: Quantize) -> None:
    """A mean over planes is a pool, as the library has one, and HardSwish is one layer."""
    layers = {layer.layer: layer for layer in quantized().layers}
    assert {name: layer.operator for name, layer in layers.items()} == {
        "first": "Conv", WIDE: "Conv", "swish": "HardSwish", "mean": "GlobalAveragePool",
        "last": "Gemm", "softmax": "Softmax",
    }
    assert {layer.type for layer in layers.values()} == {"uint8"}
    ratios = [layer.sqnr for layer in quantized().layers]
    assert ratios == sorted(ratios)


def test_the_hint_says_what_keeping_the_layer_gains(quantized: Quantize) -> None:
    plain = quantized(corrections=False)
    hint = plain.hint
    assert hint is not None
    assert (hint.layer, hint.bits) == (WIDE, 32)
    assert hint.before == pytest.approx(plain.outputs[0].sqnr)
    kept = quantized(corrections=False, keep=[WIDE])
    assert hint.after == pytest.approx(kept.outputs[0].sqnr)
    assert hint.after > hint.before + 3
    assert {layer.layer: layer.type for layer in kept.layers}[WIDE] == "float32"


def test_the_hint_finds_a_channel_that_hides_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is 300 times as large, before a Sigmoid through which nothing can be equalized: the
    ratio of the whole result says nothing of the others. Following the hint gives what it says."""
    require("gcc")
    require_exact_products()
    rng = np.random.default_rng(11)
    arrays = {
        "w0": rng.normal(size=(8, 3, 3, 3)) / 4, "w1": rng.normal(size=(8, 8, 3, 3)) / 8,
        "w2": rng.normal(size=(5, 8, 1, 1)) / 2,
    }
    arrays["w1"][2] *= 300
    nodes = [
        node("Conv", ["image", "w0"], ["c0"], name="first"),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], name="loud"),
        node("Sigmoid", ["c1"], ["s"], name="curve"),
        node("Conv", ["s", "w2"], ["y"], name="last"),
    ]
    body = graph(nodes, [value("image", INPUT)], ["y"], {
        name: array.astype(np.float32) for name, array in arrays.items()
    })
    path, data = tmp_path / "net.onnx", images(SAMPLES)
    path.write_bytes(model(body, version=18))
    np.savez(tmp_path / "data.npz", image=data)
    words = ["quantize", str(path), "--data", str(tmp_path / "data.npz"), "-o"]
    assert main([*words, str(tmp_path / "plain.onnx")]) == 0
    shown = re.search(
        r"hint: (--keep16) (loud) takes the outputs from ([\d.]+) to ([\d.]+) dB",
        capsys.readouterr().out,
    )
    assert shown is not None
    *hint, before, after = shown.groups()
    assert float(after) > float(before) + 15
    assert main([*words, str(tmp_path / "kept.onnx"), *hint]) == 0
    theirs = outputs(tmp_path / "kept.onnx", data)
    assert decibels(outputs(path, data), theirs) == pytest.approx(float(after), abs=0.2)
    exported = driver.export(
        load(tmp_path / "kept.onnx"), board="host", emit="c", output=tmp_path / "kept.tar"
    )
    rows = package_actions.simulate(exported.path, {"image": data}, trust_package=True)
    ours = np.stack([row["y"] for row in rows])
    # Of floats that lie next to the middle of two steps either may be next.
    assert (np.abs(ours - theirs) > 1e-6).mean() < 1e-3


def test_int16_activations_lose_less(quantized: Quantize) -> None:
    def first(result: QuantizeResult) -> float:
        ratio = {layer.layer: layer.sqnr for layer in result.layers}["first"]
        assert ratio is not None
        return ratio

    less = quantized(corrections=False, activations="int16")
    assert first(less) > first(quantized(corrections=False)) + 3
    assert {layer.type for layer in less.layers} == {"int16"}


def test_corrections_take_the_outputs_as_far_as_they_say(quantized: Quantize, folder: Path) -> None:
    """The network has a convolution that 8 bits don't suffice until its channels are alike."""
    result, plain = quantized(), quantized(corrections=False)
    assert [one.name for one in result.corrections] == ["equalization", "bias correction"]
    first, second = result.corrections
    assert first.used
    assert first.before == pytest.approx(plain.outputs[0].sqnr)
    assert first.after > first.before + 10
    assert second.before == first.after
    last = [one.after for one in result.corrections if one.used][-1]
    assert result.outputs[0].sqnr == pytest.approx(last)
    assert result.hint is None or result.hint.before < 30
    assert plain.corrections == ()
    found = outputs(result.path, images(SAMPLES))
    assert decibels(outputs(folder / "net.onnx", images(SAMPLES)), found) == pytest.approx(last)


def test_a_layer_in_16_bits_is_exported_so(quantized: Quantize, folder: Path) -> None:
    require("gcc")
    result = quantized(corrections=False, keep16=["first"])
    types = {layer.layer: layer.type for layer in result.layers}
    assert types.pop("first") == "int16"
    assert set(types.values()) == {"uint8"}
    exported = driver.export(result.path, board="host", emit="c", output=folder / "words.tar")
    data = images(SAMPLES)
    rows = package_actions.simulate(exported.path, {"image": data}, trust_package=True)
    theirs = outputs(result.path, data)
    off = np.abs(np.stack([row["scores"] for row in rows]) - theirs)
    # Of floats that lie next to the middle of two steps either may be next.
    assert off.max() < 1.01 / 255


def test_equalized_networks_compute_the_same(folder: Path, tmp_path: Path) -> None:
    """Through depthwise convolutions, pools and LeakyRelu, by factors that are far apart."""
    rng = np.random.default_rng(8)
    sizes = rng.uniform(0.01, 30, (2, 6)).astype(np.float32)
    arrays = {
        "w0": rng.normal(size=(6, 3, 3, 3)) * sizes[0][:, None, None, None],
        "b0": rng.normal(size=6) * sizes[0], "w1": rng.normal(size=(6, 1, 3, 3)) * 2,
        "b1": rng.normal(size=6), "w2": rng.normal(size=(5, 6, 1, 1)) / sizes[1][:, None, None],
        "b2": rng.normal(size=5),
    }
    nodes = [
        node("Conv", ["image", "w0", "b0"], ["c0"], name="first"),
        node("LeakyRelu", ["c0"], ["r0"], alpha=0.25),
        node("Conv", ["r0", "w1", "b1"], ["c1"], name="depthwise", group=6),
        node("MaxPool", ["c1"], ["p"], kernel_shape=[2, 2]),
        node("Conv", ["p", "w2", "b2"], ["y"], name="last"),
    ]
    body = graph(nodes, [value("image", INPUT)], ["y"], {
        name: array.astype(np.float32) for name, array in arrays.items()
    })
    path = tmp_path / "m.onnx"
    path.write_bytes(model(body, version=18))
    result = quantize(path, folder / "data.npz", tmp_path / "q.onnx", activations="int16")
    equalization = next(one for one in result.corrections if one.name == "equalization")
    # In 16 bits hardly anything is lost but by weights, so that another result would show.
    assert equalization.after > 25


def test_the_same_call_writes_the_same_bytes(
    quantized: Quantize, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In another process, which hashes differently; and what JSON says is what Python says."""
    again = folder / "again.onnx"
    words = ["quantize", str(folder / "net.onnx"), "--data", str(folder / "data.npz")]
    assert main([*words, "-o", str(again), "--json"]) == 0
    assert again.read_bytes() == quantized().path.read_bytes()
    data = json.loads(capsys.readouterr().out)
    expected = json.loads(msgspec.json.encode(quantized(), enc_hook=str))
    assert {**data, "path": ""} == {**expected, "path": ""}


def test_a_size_that_is_chosen_is_that_of_the_new_file(folder: Path) -> None:
    path = write(folder / "open.onnx", "n")
    np.savez(folder / "two.npz", image=images(6).reshape(3, 2, *INPUT[1:]))
    words = ["quantize", str(path), "--data", str(folder / "two.npz"), "-q", "--dim", "n=2"]
    assert main([*words, "-o", str(folder / "fixed.onnx")]) == 0
    (found,) = model_of(folder / "fixed.onnx").inputs
    assert found.type is not None
    assert found.type.tensor is not None
    assert found.type.tensor.shape is not None
    assert [dim.value for dim in found.type.tensor.shape.dims] == [2, *INPUT[1:]]


def test_tables_show_layers_outputs_and_costs(
    quantized: Quantize, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = msgspec.structs.replace(
        quantized(corrections=False), corrections=(Correction("equalization", 8, 25, True),),
        cost=BoardCost("some_board", QuantizedCost(11, 22, 33, 44444, 55), None, "no reason")
    )
    monkeypatch.setattr("crtexport.quantization.quantize.quantize", lambda *_, **__: result)
    words = ["quantize", str(folder / "net.onnx"), "--data", "d.npz"]
    assert main([*words, "-o", str(folder / "new.onnx")]) == 0
    shown = capsys.readouterr()
    for layer in result.layers:
        assert re.search(rf"{layer.layer} .*{layer.type} +{layer.sqnr:.1f}", shown.out)
    assert re.search(r"flash, whole program +44,444 +-", shown.out)
    assert f"--keep {WIDE} takes the outputs from {result.outputs[0].sqnr:.1f} to" in shown.out
    assert "equalization: used, the outputs have 25.0 dB with it and 8.0 dB without" in shown.out
    assert "no reason" in shown.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--keep", "frist"], "frist: no layer has this name\n.*did you mean 'first'"),
        (["--keep16", "frist"], "frist: no layer has this name\n.*did you mean 'first'"),
        (["--format", "qoperator", "--activations", "int16"], "has no operators of int16"),
        (["--format", "qoperator", "--keep16", "first"], "--keep16: .*has no operators of int16"),
        (["--data", "none.npz"], "there is no such file or folder"),
        (["-o", "{folder}/net.onnx"], "-o names a file that is read"),
        (["-o", "{folder}/data.npz"], "-o names a file that is read"),
        (["-o", "{folder}/none/x.onnx"], "No such file or directory"),
        (["--board", "none"], "none"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_written(
    words: list[str], problem: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = folder / "refused.onnx"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main([
        "quantize", str(folder / "net.onnx"), "--data", str(folder / "data.npz"), "-o", str(new),
        *(word.format(folder=folder) for word in words),
    ]) == 2
    assert re.search(problem, capsys.readouterr().err)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_only_float_files_are_quantized(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "data.npz"
    np.savez(data, x=np.zeros((4, 3), np.float32))
    body = graph(
        [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
         node("DequantizeLinear", ["q", "s", "z"], ["y"], name="back")],
        [value("x", [1, 3])], ["y"],
    )
    path.write_bytes(model(body))
    with pytest.raises(CrtExportError, match=r"quantized already|supported"):
        quantize(path, data, tmp_path / "out.onnx")
    other = tmp_path / "model.json"
    other.write_text('{"format": "crtexport-model"}')
    with pytest.raises(CrtExportError, match=r"only \.onnx and \.tflite files"):
        quantize(other, data, tmp_path / "out.onnx")


def test_a_library_that_is_missing_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The tests' own Python may have the library.
    venv.create(tmp_path / "bare", symlinks=True)
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", str(tmp_path / "bare" / "bin" / "python"))
    words = ["quantize", str(folder / "net.onnx"), "--data", str(folder / "data.npz")]
    assert main([*words, "-o", str(folder / "x.onnx")]) == 3
    error = capsys.readouterr().err
    assert "crtexport[quantize]" in error
    assert "crtexport quantize --install-reference" in error
    monkeypatch.setenv("CRTEXPORT_ONNX_PYTHON", "/no/python")
    with pytest.raises(ToolMissingError, match="can't be started"):
        quantize(folder / "net.onnx", folder / "data.npz", folder / "x.onnx")


def test_what_is_not_known_of_a_board_has_a_reason(folder: Path) -> None:
    """Of a file that can't be exported nothing is known, of the other all that a plan says."""
    broken = folder / "broken.onnx"
    broken.write_bytes(model(graph([node("Nonsense", ["x"], ["y"])], [value("x", [1])], ["y"])))
    cost = compare((folder / "net.onnx", broken), load_board("nrf52840dk"), NO_CHOICES)
    assert cost.after is None
    assert "Nonsense" in cost.problem
    assert cost.before is not None
    assert cost.before.buffers == 4 * (int(np.prod(INPUT)) + 5)
    assert cost.before.constants >= sum(
        array.nbytes for name, array in constants().items() if name in ("w0", "w1", "w2")
    )
