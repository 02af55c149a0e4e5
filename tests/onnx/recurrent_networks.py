"""Draws recurrent networks as PyTorch writes them, and operators with all their attributes, and
runs them with ONNX Runtime.

``python recurrent_networks.py FOLDER COUNT``, in an environment with onnx and onnxruntime, writes
a model, its inputs and ONNX Runtime's outputs (``.npz``) for each.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
USUAL = {"RNN": 1, "GRU": 2, "LSTM": 3}
SIMPLE = ("Sigmoid", "Tanh", "Relu", "HardSigmoid", "LeakyRelu", "Elu", "Softsign", "Affine",
          "ScaledTanh", "ThresholdedRelu", "Softplus")
PARAMETERS: dict[str, tuple[float, float | None]] = {
    "HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.1, None), "Elu": (0.7, None), "Affine": (0.5, 0.1),
    "ScaledTanh": (0.9, 0.7), "ThresholdedRelu": (0.2, None),
}


class Network:
    """Nodes and constants of a model that is being written."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.feeds: dict[str, Array] = {}

    def floats(self, *shape: int) -> Array:
        return self.rng.normal(0, 0.5, shape).astype(np.float32)

    def input(self, name: str, array: Array) -> str:
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        self.feeds[name] = array
        return name

    def constant(self, name: str, array: Array) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> str:
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs[0]

    def layer(
        self, kind: str, x: str, depth: int, units: int, number: int, *,
        states: Sequence[str] = (), direction: str = "forward", **attributes: Any,
    ) -> list[str]:
        """A layer with random weights; Y, Y_h and, of LSTM, Y_c are its outputs."""
        directions, rows = 1 + (direction == "bidirectional"), GATES[kind] * units
        weights = [
            self.constant(f"w{number}", self.floats(directions, rows, depth)),
            self.constant(f"r{number}", self.floats(directions, rows, units)),
            self.constant(f"b{number}", self.floats(directions, 2 * rows)),
        ]
        outputs = [f"y{number}", f"h{number}"] + ([f"c{number}"] if kind == "LSTM" else [])
        self.node(kind, [x, *weights, *states], outputs, hidden_size=units, direction=direction,
                  **attributes)
        return outputs

    def save(self, folder: Path, name: str, outputs: Sequence[str]) -> None:
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, name, self.inputs, infos, self.constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
        )
        onnx.save(model, folder / f"{name}.onnx")
        session = onnxruntime.InferenceSession(model.SerializeToString())
        results = session.run(outputs, self.feeds)
        np.savez(folder / f"{name}.npz", **self.feeds, **{
            f"out:{o}": r for o, r in zip(outputs, results, strict=True)
        })


def lstm_of_two_layers(folder: Path) -> None:
    """Writes PyTorch's ``nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True)``."""
    net = Network(1)
    x = net.input("x", net.floats(2, 7, 5))
    x, depth = net.node("Transpose", [x], ["xt"], perm=[1, 0, 2]), 5
    shape = net.constant("shape", np.array([0, 0, -1]))
    for number in range(2):
        h0 = net.constant(f"h0{number}", np.zeros((2, 2, 6), np.float32))
        outputs = net.layer("LSTM", x, depth, 6, number, states=["", h0, h0],
                            direction="bidirectional")
        back = net.node("Transpose", outputs[:1], [f"t{number}"], perm=[0, 2, 1, 3])
        x, depth = net.node("Reshape", [back, shape], [f"f{number}"]), 12
    x = net.node("Transpose", [x], ["all"], perm=[1, 0, 2])
    last = net.node("Gather", [x, net.constant("last", np.array(-1))], ["g"], axis=1)
    net.node("Gemm", [last, net.constant("m", net.floats(12, 3))], ["out"])
    net.save(folder, "lstm_of_two_layers", ["out", "h1", "c1"])


def gru_and_its_last_step(folder: Path) -> None:
    """Writes PyTorch's ``nn.GRU(4, 8)`` and a layer on the last step."""
    net = Network(2)
    x = net.input("x", net.floats(25, 1, 4))
    start = net.input("start", net.floats(1, 1, 8))
    outputs = net.layer("GRU", x, 4, 8, 0, states=["", start], linear_before_reset=1)
    x = net.node("Squeeze", [outputs[0], net.constant("one", np.array([1]))], ["s"])
    last = net.node("Gather", [x, net.constant("last", np.array(-1))], ["g"], axis=0)
    net.node("Gemm", [last, net.constant("m", net.floats(8, 3))], ["out"])
    net.save(folder, "gru_and_its_last_step", ["out", "h0"])


def last_state(folder: Path) -> None:
    """A network that reads the last state alone."""
    net = Network(4)
    outputs = net.layer("GRU", net.input("x", net.floats(6, 3, 4)), 4, 5, 0)
    net.node("Relu", outputs[1:2], ["out"])
    net.save(folder, "last_state", ["out"])


def gru_cell(folder: Path) -> None:
    """Writes PyTorch's ``nn.GRUCell(4, 6)``: one step of plain operators."""
    net = Network(3)
    x, h = net.input("x", net.floats(2, 4)), net.input("h", net.floats(2, 6))
    gi = net.node("Gemm", [x, net.constant("wi", net.floats(18, 4)),
                           net.constant("bi", net.floats(18))], ["gi"], transB=1)
    gh = net.node("Gemm", [h, net.constant("wh", net.floats(18, 6)),
                           net.constant("bh", net.floats(18))], ["gh"], transB=1)
    net.node("Split", [gi], ["ir", "iz", "in"], axis=1, num_outputs=3)
    net.node("Split", [gh], ["hr", "hz", "hn"], axis=1, num_outputs=3)
    r = net.node("Sigmoid", [net.node("Add", ["ir", "hr"], ["ra"])], ["r"])
    z = net.node("Sigmoid", [net.node("Add", ["iz", "hz"], ["za"])], ["z"])
    n = net.node("Tanh", [net.node("Add", ["in", net.node("Mul", [r, "hn"], ["rh"])], ["na"])],
                 ["n"])
    back = net.node("Mul", [net.node("Sub", [h, n], ["d"]), z], ["dz"])
    net.node("Add", [back, n], ["out"])
    net.save(folder, "gru_cell", ["out"])


def drawn(folder: Path, seed: int) -> None:
    """One operator with attributes, states and lengths drawn."""
    net = Network(seed + 100)
    rng = net.rng
    kind = ("RNN", "GRU", "LSTM")[seed % 3]
    steps, batches, depth, units = (int(n) for n in rng.integers(1, 6, 4))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions = 1 + (direction == "bidirectional")
    x = net.input("x", net.floats(steps, batches, depth))
    states = ["", "", "", ""]
    if rng.random() < 0.5:
        lengths = rng.integers(1, steps + 1, batches).astype(np.int32)
        states[0] = net.input("lengths", lengths)
    if rng.random() < 0.7:
        states[1] = net.input("start", net.floats(directions, batches, units))
    attributes: dict[str, Any] = {}
    if kind == "LSTM":
        if rng.random() < 0.7:
            states[2] = net.input("cells", net.floats(directions, batches, units))
        if rng.random() < 0.5:
            states[3] = net.constant("p", net.floats(directions, 3 * units))
        if rng.random() < 0.3:
            attributes["input_forget"] = 1
    if kind == "GRU":
        attributes["linear_before_reset"] = int(rng.integers(0, 2))
    if rng.random() < 0.4:
        attributes["clip"] = 0.4
    if rng.random() < 0.7:
        count = USUAL[kind] * directions
        names = [str(n) for n in rng.choice(SIMPLE, count)]
        attributes["activations"] = names
        pairs = [PARAMETERS[name] for name in names if name in PARAMETERS]
        attributes["activation_alpha"] = [a for a, _ in pairs]
        attributes["activation_beta"] = [b for _, b in pairs if b is not None]
        attributes = {k: v for k, v in attributes.items() if v != []}
    while states and not states[-1]:
        states.pop()
    outputs = net.layer(kind, x, depth, units, 0, states=states, direction=direction, **attributes)
    net.save(folder, f"drawn_{seed}", outputs)


def main() -> None:
    folder = Path(sys.argv[1])
    lstm_of_two_layers(folder)
    gru_and_its_last_step(folder)
    last_state(folder)
    gru_cell(folder)
    for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 30):
        drawn(folder, seed)


if __name__ == "__main__":
    main()
