"""A small convolutional network, drawn, as an .onnx file, with data to calibrate it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.importers.onnx.writer import Array, block, graph, model, node, value

INPUT = (1, 3, 10, 14)
WIDE = "wide"
"""A convolution with large weights for a channel that is always 0: 8 bits leave little to others.
"""


def constants() -> dict[str, Array]:
    """The network's weights by name, and the numbers of its batch normalization."""
    rng = np.random.default_rng(1)
    shapes = {
        "w0": (6, 3, 3, 3), "b0": (6,), "w1": (8, 6, 1, 1), "b1": (8,), "w2": (8, 5), "b2": (5,),
    }
    found = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found["w1"][:, -1] = 300
    for name in ("scale", "shift", "mean", "variance"):
        found[name] = rng.uniform(0.5, 2, 6).astype(np.float32)
    found["shift"][-1] = -100
    return found


def write(path: Path, batch: int | str = 1) -> Path:
    """Writes the network: a convolution with a batch normalization and a Relu, one that is WIDE,
    and PyTorch's way to average planes."""
    found = constants() | {"axes": np.array([-1, -2])}
    normal = ("scale", "shift", "mean", "variance")
    nodes = [
        node("Conv", ["image", "w0", "b0"], ["c0"], name="first", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c0", *normal], ["n0"], epsilon=0.01),
        node("Relu", ["n0"], ["r0"]),
        node("Conv", ["r0", "w1", "b1"], ["c1"], name=WIDE),
        node("HardSwish", ["c1"], ["h1"], name="swish"),
        node("ReduceMean", ["h1", "axes"], ["m"], name="mean", keepdims=0),
        node("Gemm", ["m", "w2", "b2"], ["g"], name="last"),
        node("Softmax", ["g"], ["scores"], name="softmax", axis=-1),
    ]
    body = graph(nodes, [value("image", [batch, *INPUT[1:]])], [], found)
    path.write_bytes(model(body + block(12, value("scores", [batch, 5])), version=18))
    return path


def images(count: int) -> Array:
    """Data of ``count`` samples, each with the shape of the input."""
    rng = np.random.default_rng(2)
    return rng.standard_normal((count, *INPUT)).astype(np.float32)
