"""Trains the digits example, quantizes it to int8 and writes it as model.json.

A network of 3,818 parameters for the 8x8 images of handwritten digits that scikit-learn bundles
(UCI, 1,797 images), trained in plain NumPy:

    image 8x8x1 -> conv 3x3x8, relu -> max pool 2x2 -> conv 3x3x16, relu -> dense 10 -> softmax

Every run writes the same bytes, on any processor. That is why nothing here calls BLAS, whose sums
depend on it: products are summed in a written order, and exp() is spelled out.

Usage: python train.py [FOLDER]      (the folder of this file, unless given)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from crtexport.importers import crtjson
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import (
    Activation,
    Conv2D,
    FullyConnected,
    MaxPool2D,
    Op,
    Padding2D,
    Reshape,
    Softmax,
)
from crtexport.ir.types import ConstantRef, DType, Quantization, TensorType
from crtexport.mlf.npz import save_npz

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SEED = 2026
HELD_OUT = 360
EPOCHS = 30
BATCH = 32
LEARNING_RATE = 0.08
MOMENTUM = 0.9
DECAY = 1e-3
SAMPLES = 12


@dataclass(frozen=True)
class Split:
    """Images (n,8,8,1) with values 0..1, labels (n,)."""

    images: Floats
    labels: Integers


@dataclass
class Weights:
    """Convolutions as (9 * channels in, channels out), the dense layer as (256, 10)."""

    conv1: Floats
    bias1: Floats
    conv2: Floats
    bias2: Floats
    dense: Floats
    bias3: Floats

    def arrays(self) -> tuple[Floats, ...]:
        return self.conv1, self.bias1, self.conv2, self.bias2, self.dense, self.bias3


@dataclass(frozen=True)
class Activations:
    """What one forward pass computed; backward() needs it, and so do the ranges of int8."""

    patches1: Floats
    conv1: Floats
    pooled: Floats
    patches2: Floats
    conv2: Floats
    logits: Floats


def split_digits() -> tuple[Split, Split]:
    """The training and the held-out images, shuffled by the seed."""
    digits = load_digits()
    order = np.random.RandomState(SEED).permutation(len(digits.target))
    images = digits.images[order][..., None] / 16.0
    labels = digits.target[order].astype(np.int64)
    return (
        Split(images[HELD_OUT:], labels[HELD_OUT:]),
        Split(images[:HELD_OUT], labels[:HELD_OUT]),
    )


# ---- arithmetic whose result does not depend on the machine ----


def product(left: Floats, right: Floats) -> Floats:
    """Matrix product (n,k) by (k,m), summed over k in ascending order."""
    total = np.zeros((left.shape[0], right.shape[1]))
    for k in range(left.shape[1]):
        total += left[:, k, None] * right[k]
    return total


def product_of_transposed(left: Floats, right: Floats) -> Floats:
    """Matrix product of left (n,k), transposed, and right (n,m): (k,m)."""
    return np.stack([(left[:, k, None] * right).sum(axis=0) for k in range(left.shape[1])])


def exponential(x: Floats) -> Floats:
    """exp of x <= 0: halvings taken out, then twelve terms of the series."""
    halvings = np.rint(x / 0.6931471805599453)
    rest = x - halvings * 0.6931471805599453
    total = np.ones_like(x)
    for term in range(12, 0, -1):
        total = 1.0 + total * rest / term
    return np.ldexp(total, halvings.astype(np.int32))


# ---- the network in float ----


def patches(images: Floats) -> Floats:
    """Every pixel's 3x3 surroundings, zero outside: (n,h,w,c) to (n*h*w, 9*c)."""
    n, height, width, channels = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = [
        padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)
    ]
    return np.concatenate(windows, axis=3).reshape(n * height * width, 9 * channels)


def unpatch(gradient: Floats, shape: tuple[int, ...]) -> Floats:
    """The adjoint of patches(): gradients of overlapping windows added up."""
    n, height, width, channels = shape
    windows = gradient.reshape(n, height, width, 9, channels)
    padded = np.zeros((n, height + 2, width + 2, channels))
    for k in range(9):
        padded[:, k // 3 : k // 3 + height, k % 3 : k % 3 + width] += windows[:, :, :, k]
    return padded[:, 1:-1, 1:-1]


def quarters(images: Floats) -> list[Floats]:
    """The four pixels of every 2x2 window, as four images of half the size."""
    return [images[:, y::2, x::2] for y in range(2) for x in range(2)]


def forward(weights: Weights, images: Floats) -> Activations:
    """All activations for images (n,8,8,1)."""
    n = len(images)
    patches1 = patches(images)
    conv1 = np.maximum(product(patches1, weights.conv1) + weights.bias1, 0).reshape(n, 8, 8, 8)
    a, b, c, d = quarters(conv1)
    pooled = np.maximum(np.maximum(a, b), np.maximum(c, d))
    patches2 = patches(pooled)
    conv2 = np.maximum(product(patches2, weights.conv2) + weights.bias2, 0)
    logits = product(conv2.reshape(n, 256), weights.dense) + weights.bias3
    return Activations(patches1, conv1, pooled, patches2, conv2, logits)


def backward(weights: Weights, seen: Activations, labels: Integers) -> tuple[Floats, ...]:
    """Gradients of the mean cross entropy, in the order of Weights.arrays()."""
    n = len(labels)
    powers = exponential(seen.logits - seen.logits.max(axis=1, keepdims=True))
    at_logits = powers / powers.sum(axis=1, keepdims=True)
    at_logits[np.arange(n), labels] -= 1.0
    at_logits /= n
    dense = product_of_transposed(seen.conv2.reshape(n, 256), at_logits)
    at_conv2 = product(at_logits, weights.dense.T).reshape(-1, 16) * (seen.conv2 > 0)
    conv2 = product_of_transposed(seen.patches2, at_conv2)
    at_pooled = unpatch(product(at_conv2, weights.conv2.T), seen.pooled.shape)
    at_conv1 = np.zeros_like(seen.conv1)
    free = np.ones(seen.pooled.shape, dtype=bool)
    for source, target in zip(quarters(seen.conv1), quarters(at_conv1), strict=True):
        chosen = free & (source == seen.pooled)
        target[...] = at_pooled * chosen
        free &= ~chosen
    at_conv1 = (at_conv1 * (seen.conv1 > 0)).reshape(-1, 8)
    conv1 = product_of_transposed(seen.patches1, at_conv1)
    return (
        conv1, at_conv1.sum(axis=0), conv2, at_conv2.sum(axis=0), dense, at_logits.sum(axis=0)
    )


def shifted(images: Floats, random: np.random.RandomState) -> Floats:
    """The images, half of them moved by up to one pixel each way: more to learn from."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moves = random.randint(0, 3, (len(images), 2))
    moves[random.random_sample(len(images)) < 0.5] = 1
    return np.stack([one[y : y + 8, x : x + 8] for one, (y, x) in zip(padded, moves, strict=True)])


def train(data: Split) -> Weights:
    """Stochastic gradient descent with momentum; the rate falls linearly to zero."""
    random = np.random.RandomState(SEED)

    def uniform(rows: int, columns: int) -> Floats:
        limit = np.sqrt(6.0 / rows)
        return (2.0 * random.random_sample((rows, columns)) - 1.0) * limit

    weights = Weights(
        uniform(9, 8), np.zeros(8), uniform(72, 16), np.zeros(16), uniform(256, 10), np.zeros(10)
    )
    speeds = [np.zeros_like(array) for array in weights.arrays()]
    batches = len(data.labels) // BATCH
    for step in range(EPOCHS * batches):
        if step % batches == 0:
            order = random.permutation(len(data.labels))
        chosen = order[step % batches * BATCH :][:BATCH]
        seen = forward(weights, shifted(data.images[chosen], random))
        rate = LEARNING_RATE * (1.0 - step / (EPOCHS * batches))
        gradients = backward(weights, seen, data.labels[chosen])
        for array, speed, gradient in zip(weights.arrays(), speeds, gradients, strict=True):
            speed[...] = MOMENTUM * speed - rate * (gradient + DECAY * array)
            array[...] = array + speed
    return weights


def accuracy(scores: npt.NDArray[np.generic], labels: Integers) -> float:
    """The share of rows of ``scores`` whose largest value stands at the label."""
    return float((scores.argmax(axis=1) == labels).mean())


# ---- the network in int8 ----


def asymmetric(values: Floats) -> Quantization:
    """int8 for one activation: the range seen in training, with 0 exactly representable."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((high - low) / 255.0))
    return Quantization((scale,), (int(np.rint(-128.0 - low / scale)),))


def quantize(values: Floats, quantization: Quantization) -> npt.NDArray[np.int8]:
    """Real values as int8 of one scale and zero point."""
    real = np.rint(values / quantization.scale[0]) + quantization.zero_point[0]
    stored: npt.NDArray[np.int8] = np.clip(real, -128, 127).astype(np.int8)
    return stored


class GraphBuilder:
    """Collects tensors and nodes; activations are int8, weights symmetric, biases int32."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []

    def tensor(self, name: str, shape: tuple[int, ...], quant: Quantization) -> int:
        """An activation; returns its id."""
        self.tensors.append(Tensor(name, TensorType(DType.INT8, shape, quant)))
        return len(self.tensors) - 1

    def constant(self, name: str, values: npt.NDArray[np.generic], quant: Quantization) -> int:
        """A constant; returns its id."""
        type_ = TensorType(DType(values.dtype.name), values.shape, quant)
        self.tensors.append(Tensor(name, type_, ConstantRef.of(values)))
        return len(self.tensors) - 1

    def layer(
        self, name: str, source: int, weights: Floats, bias: Floats, *, per_channel: bool
    ) -> tuple[int, int, int]:
        """Inputs of a layer; its weights have the output first and one scale, or one for each."""
        rows = np.abs(weights).reshape(len(weights), -1).max(axis=1)
        largest = rows if per_channel else rows.max(keepdims=True)
        scale = (largest / 127.0).astype(np.float32).astype(np.float64)
        zeros, axis = (0,) * len(scale), 0 if per_channel else None
        spread = scale.reshape(-1, *[1] * (weights.ndim - 1))
        stored = np.clip(np.rint(weights / spread), -127, 127).astype(np.int8)
        source_quant = self.tensors[source].type.quant
        if source_quant is None:
            raise ValueError(f"{name}: the input has no quantization")
        steps = (scale * source_quant.scale[0]).astype(np.float32).astype(np.float64)
        quant = Quantization(tuple(scale.tolist()), zeros, axis)
        bias_quant = Quantization(tuple(steps.tolist()), zeros, axis)
        return (
            source,
            self.constant(f"{name}/weights", stored, quant),
            self.constant(f"{name}/bias", np.rint(bias / steps).astype(np.int32), bias_quant),
        )

    def convolution(
        self, name: str, source: int, columns: Floats, bias: Floats
    ) -> tuple[int, int, int]:
        """Inputs of a 3x3 convolution whose weights are (9 * channels in, channels out)."""
        weights = columns.reshape(3, 3, -1, columns.shape[1]).transpose(3, 0, 1, 2)
        return self.layer(name, source, weights, bias, per_channel=True)

    def node(self, op: Op, name: str, inputs: tuple[int, ...], output: int) -> int:
        """A node with one output; returns the output."""
        self.nodes.append(Node(op, inputs, (output,), name))
        return output


def build_graph(weights: Weights, seen: Activations) -> Graph:
    """The int8 network; ``seen`` are the float activations that fix the ranges."""
    build = GraphBuilder()
    pixels = Quantization((float(np.float32(1.0 / 255.0)),), (-128,))
    after1, after2, scores = map(asymmetric, (seen.conv1, seen.conv2, seen.logits))
    same, relu = Padding2D(1, 1, 1, 1), Activation.RELU
    image = build.tensor("image", (1, 8, 8, 1), pixels)
    conv1 = build.node(
        Conv2D(padding=same, activation=relu), "conv1",
        build.convolution("conv1", image, weights.conv1, weights.bias1),
        build.tensor("conv1", (1, 8, 8, 8), after1),
    )
    pool = build.node(
        MaxPool2D(window=(2, 2), stride=(2, 2)), "pool", (conv1,),
        build.tensor("pool", (1, 4, 4, 8), after1),
    )
    conv2 = build.node(
        Conv2D(padding=same, activation=relu), "conv2",
        build.convolution("conv2", pool, weights.conv2, weights.bias2),
        build.tensor("conv2", (1, 4, 4, 16), after2),
    )
    flat = build.node(
        Reshape((1, 256)), "flatten", (conv2,), build.tensor("flatten", (1, 256), after2)
    )
    logits = build.node(
        FullyConnected(), "dense",
        build.layer("dense", flat, weights.dense.T, weights.bias3, per_channel=False),
        build.tensor("logits", (1, 10), scores),
    )
    output = build.node(
        Softmax(), "softmax", (logits,),
        build.tensor("probabilities", (1, 10), Quantization((1.0 / 256.0,), (-128,))),
    )
    return Graph("digits", tuple(build.tensors), tuple(build.nodes), (image,), (output,))


def main(folder: Path) -> float:
    """Train, write the files into ``folder``, and return the float accuracy (held out)."""
    training, held_out = split_digits()
    weights = train(training)
    graph = build_graph(weights, forward(weights, training.images))
    crtjson.save(graph, folder / "model.json")
    quantization = graph.type(graph.inputs[0]).quant
    if quantization is None:
        raise ValueError("the input has no quantization")
    first = quantize(held_out.images[:SAMPLES], quantization)
    # Not numpy.savez, whose bytes differ between releases of Python.
    save_npz(folder / "test_images.npz", {"image": first[:, None]})
    np.save(folder / "test_labels.npy", held_out.labels[:SAMPLES].astype(np.uint8))
    return accuracy(forward(weights, held_out.images).logits, held_out.labels)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    sys.stdout.write(f"float accuracy on {HELD_OUT} held-out images: {main(target):.4f}\n")
