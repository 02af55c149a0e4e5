"""Nodes with drawn shapes and attributes give what ONNX Runtime gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtexport.importers import load
from tests.differential.network import interpret
from tests.helpers import require_environment
from tests.importers.onnx.writer import block, graph, model, node, value
from tests.onnx import drawn_learning, drawn_nodes, drawn_quantized
from tests.onnx.drawn_nodes import VERSION
from tests.onnx.draws import Array, Draw, DrawnNode

ANSWERS = Path(__file__).with_name("answers.py")
EACH = 16
"""Nodes of each kind,"""
MORE = {"conv": 40, "conv_transpose": 80, "pool": 80, "resize_linear": 30, "resize_nearest": 30}
"""and of those whose attributes have many combinations."""
PRODUCTS = {"qlinear_conv", "qlinear_matmul", "qgemm", "integer_products"}
DRAWS = (*drawn_nodes.DRAWS, *drawn_quantized.DRAWS, *drawn_learning.DRAWS)


def written(drawn: DrawnNode, path: Path, *, behind_conv: bool) -> dict[str, Array]:
    """Writes a model of the node, and returns the inputs from outside by name. ``behind_conv``: its
    first input comes from a convolution, which has its channels last."""
    names = ["" if array is None else f"i{i}" for i, array in enumerate(drawn.inputs)]
    arrays = {n: a for n, a in zip(names, drawn.inputs, strict=True) if a is not None}
    given = {f"i{i}": arrays[f"i{i}"] for i in drawn.computed}
    constants = {name: array for name, array in arrays.items() if name not in given}
    nodes, at = [], names
    if behind_conv:
        channels = arrays["i0"].shape[1]
        constants["w"] = np.eye(channels, dtype=np.float32)[::-1, :, None, None].copy()
        nodes.append(node("Conv", ["i0", "w"], ["c"]))
        at = ["c", *names[1:]]
    outputs = [f"y{i}" for i in range(drawn.outputs)]
    nodes.append(node(drawn.operator, at, outputs, domain=drawn.domain, **drawn.attributes))
    body = graph(
        nodes, [value(n, a.shape, a.dtype.name) for n, a in given.items()], [], constants
    )
    body += b"".join(block(12, block(1, name)) for name in outputs)
    domains = [drawn.domain] if drawn.domain else []
    path.write_bytes(model(
        body, version=VERSION, ir_version=10, domains=domains, domain_version=drawn.domain_version
    ))
    np.savez(path.with_suffix(".in.npz"), **given)
    return given


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all nodes, with their inputs and what ONNX Runtime makes of them."""
    python = require_environment("onnx", "onnxruntime")
    folder = tmp_path_factory.mktemp("nodes")
    for kind, draw in enumerate(DRAWS):
        for number in range(MORE.get(draw.__name__, EACH)):
            drawn = draw(Draw((kind, number)))
            x = drawn.inputs[0]
            assert x is not None
            written(
                drawn, folder / f"{draw.__name__}.{number}.onnx",
                behind_conv=number % 2 == 1 and x.ndim == 4 and x.dtype == np.float32
                and 0 in drawn.computed,
            )
    done = subprocess.run(
        (python, "-W", "ignore", str(ANSWERS), str(folder)), check=False, capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("kind", [draw.__name__ for draw in DRAWS])
def test_nodes_give_what_onnx_runtime_gives(kind: str, answered: Path) -> None:
    if kind in PRODUCTS and "vnni" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("without VNNI, ONNX Runtime's products of uint8 and int8 saturate in 16 bits")
    for number in range(MORE.get(kind, EACH)):
        path = answered / f"{kind}.{number}.onnx"
        network = load(path)
        with np.load(path.with_suffix(".in.npz")) as given:
            ours = interpret(network, [given[network.tensors[i].name] for i in network.inputs])
        with np.load(path.with_suffix(".out.npz")) as answers:
            expected = [*answers.values()]
        assert len(ours) == len(expected)
        for found, theirs in zip(ours, expected, strict=True):
            assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape), path.stem
            np.testing.assert_allclose(
                found, theirs, rtol=2e-5, atol=2e-5 * float(np.abs(theirs).max(initial=0)),
                err_msg=path.stem,
            )
