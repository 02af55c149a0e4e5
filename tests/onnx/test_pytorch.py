"""Networks of PyTorch's exporter compute on a Cortex-M4 what ONNX Runtime does, in little memory.

Their descriptions in tests/golden/pytorch have all but the numbers of weights, so that no PyTorch
is needed but for the test that they are what it writes; ``--update-golden`` writes them there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from msgspec import Struct

import crtexport
from crtexport.firmware.run import RunResult
from crtexport.ir.graph import Graph
from crtexport.ir.ops import Reshape, Transpose
from crtexport.package_actions import run_all
from crtexport.pipeline.driver import Prepared
from tests.conftest import GOLDEN
from tests.helpers import require, require_environment

HERE = Path(__file__).parent
SAMPLES = 3
INNER = {"transformer": 2 * 4, "mobilenet_v2_block": 1}
"""Each layer of attention puts queries, keys and values in the order of its heads, and back; what
the block makes is transposed before its input is added, which is there as it came."""

FROM_TFLITE = {
    "autoencoder": 224, "bilstm": 6_288, "convmixer": 10_176, "dscnn": 24_000, "gru": 7_296,
    "gru_cell": 192, "mobilenet_v2_block": 25_488, "mobilenet_v3_block": 12_300, "resnet8": 27_520,
    "tcn": 10_336, "transformer": 15_104, "unet": 49_152,
}
"""Bytes of workspace that the same networks take when they come from LiteRT's converter."""


class Ran(Struct, frozen=True):
    """The exported networks, what they gave on the board, and ONNX Runtime's files, by name."""

    models: Mapping[str, Prepared]
    results: Mapping[str, RunResult]
    folder: Path

    def arrays(self, name: str, side: str) -> list[np.ndarray]:
        with np.load(self.folder / f"{name}.{side}.npz") as archive:
            return [archive[key] for key in archive.files]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        require(tool)
    folder = tmp_path_factory.mktemp("pytorch")
    python = require_environment("onnx", "onnx", "onnxruntime")
    subprocess.run(
        (python, "-W", "ignore", HERE / "described.py", GOLDEN / "pytorch", folder, str(SAMPLES)),
        check=True, capture_output=True,
    )
    paths = sorted(folder.glob("*.onnx"))
    exported = crtexport.export(paths, board="mps2_an386", output=folder / "all.tar")
    inputs = {}
    for path in paths:
        with np.load(path.with_suffix(".in.npz")) as archive:
            inputs |= {f"{path.stem}/{name}": archive[name] for name in archive.files}
    models = {path.stem: model for path, model in zip(paths, exported.models, strict=True)}
    return Ran(models, run_all(exported.path, inputs), folder)


def test_the_board_computes_what_onnx_runtime_does(ran: Ran) -> None:
    assert len(ran.models) == 12
    wrong = {}
    for name in ran.models:
        for number, expected in enumerate(ran.arrays(name, "out")):
            found = np.stack([row[number] for row in ran.results[name].outputs])
            assert found.shape == expected.shape
            difference = float(np.abs(found - expected).max() / np.abs(expected).max())
            if not difference <= 1e-5:
                wrong[name] = difference
    assert not wrong


def test_no_network_takes_much_stack(ran: Ran) -> None:
    assert {name: r.stack for name, r in ran.results.items() if not 0 < (r.stack or 0) < 512} == {}


def test_only_what_comes_in_or_goes_out_is_transposed(ran: Ran) -> None:
    found = {name: _inner_transposes(model.lowered.graph) for name, model in ran.models.items()}
    assert {name: count for name, count in found.items() if count} == INNER


def test_the_workspace_is_no_larger_than_what_is_needed_at_one_time(ran: Ran) -> None:
    """But for what kernels need themselves: a sixteenth more and 192 bytes are left to them."""
    too_large = {
        name: (model.plan.workspace_size, _needed(model.lowered.graph))
        for name, model in ran.models.items()
        if model.plan.workspace_size > _needed(model.lowered.graph) * 17 / 16 + 192
    }
    assert not too_large


def test_the_workspace_is_no_larger_than_that_of_the_same_network_from_tflite(ran: Ran) -> None:
    found = {name: ran.models[name].plan.workspace_size for name in FROM_TFLITE}
    assert {name: size for name, size in found.items() if size > FROM_TFLITE[name]} == {}


def test_descriptions_are_what_pytorch_writes(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    python = require_environment("onnx", "torch", "onnxscript")
    script = HERE / "pytorch_networks.py"
    subprocess.run(
        ("env", "OMP_NUM_THREADS=1", python, "-W", "ignore", script, tmp_path), check=True,
        capture_output=True,
    )
    for path in sorted(tmp_path.iterdir()):
        golden(f"pytorch/{path.name}", path.read_text())


def _roots(graph: Graph) -> list[int]:
    """Returns for each tensor the one whose bytes it is, reshaped or not."""
    roots = [*range(len(graph.tensors))]
    for node in graph.nodes:
        if isinstance(node.op, Reshape):
            roots[node.outputs[0]] = roots[graph.required(node, 0)]
    return roots


def _inner_transposes(graph: Graph) -> int:
    roots = _roots(graph)
    ends = {*graph.inputs, *(roots[tensor] for tensor in graph.outputs)}
    return sum(
        isinstance(node.op, Transpose)
        and ends.isdisjoint((roots[graph.required(node, 0)], node.outputs[0]))
        for node in graph.nodes
    )


def _needed(graph: Graph) -> int:
    """Returns the bytes of the tensors between inputs and outputs that are alive at one time."""
    roots = _roots(graph)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, node in enumerate(graph.nodes):
        for tensor in (*node.inputs, *node.outputs):
            if tensor is not None and graph.constant(tensor) is None:
                first.setdefault(roots[tensor], step)
                last[roots[tensor]] = step
    for tensor in {*graph.inputs, *(roots[tensor] for tensor in graph.outputs)}:
        first.pop(tensor, None)
    return max(
        sum(graph.type(t).nbytes for t, start in first.items() if start <= step <= last[t])
        for step in range(len(graph.nodes))
    )
