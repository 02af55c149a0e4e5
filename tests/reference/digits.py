"""The digits example computed in plain NumPy integers, from its two files and nothing of crtexport.

Restates TensorFlow Lite's meaning of the int8 operators in Python, slowly, so that a test of the
exported code has an opinion that shares no code with it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from tests.tflite_builder import ModelBuilder

Array = npt.NDArray[Any]

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples" / "digits"


class Digits:
    """The network's tensors by name, as stored."""

    def __init__(self, folder: Path = FOLDER) -> None:
        document = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        stored = load_file(folder / "model.safetensors")
        self.tensors: dict[str, dict[str, Any]] = {t["name"]: t for t in document["tensors"]}
        self.constants: dict[str, Array] = {
            name: stored[tensor["data"]["tensor"]]
            if isinstance(tensor["data"], dict)
            else np.array(tensor["data"], tensor["dtype"])
            for name, tensor in self.tensors.items()
            if "data" in tensor
        }

    def scales(self, name: str) -> list[float]:
        """float32 scales of a tensor, one or one per channel."""
        return [float(s) for s in np.atleast_1d(self.tensors[name]["quantization"]["scale"])]

    def zero_point(self, name: str) -> int:
        return int(self.tensors[name]["quantization"].get("zero_point", 0))

    def logits(self, image: Array) -> Array:
        """int8 scores (10,) of one int8 image (1,8,8,1)."""
        conv1 = self._scaled("conv1", "image", self._convolve("conv1", "image", image[0]), "conv1")
        pooled = conv1.reshape(4, 2, 4, 2, 8).max(axis=(1, 3))
        conv2 = self._scaled("conv2", "pool", self._convolve("conv2", "pool", pooled), "conv2")
        offset = conv2.reshape(256).astype(np.int64) - self.zero_point("flatten")
        sums = self.constants["dense/weights"].astype(np.int64) @ offset
        return self._scaled("dense", "flatten", sums, "logits")

    def _convolve(self, layer: str, source: str, image: Array) -> Array:
        """Sums of a 3x3 convolution over an image (h,w,c), padded with real 0."""
        weights = self.constants[f"{layer}/weights"].astype(np.int64)
        height, width, _ = image.shape
        padded = np.pad(
            image.astype(np.int64) - self.zero_point(source), ((1, 1), (1, 1), (0, 0))
        )
        windows = [
            padded[y : y + height, x : x + width] @ weights[:, y, x].T
            for y in range(3)
            for x in range(3)
        ]
        return np.sum(windows, axis=0)

    def _scaled(self, layer: str, source: str, sums: Array, result: str) -> Array:
        """Sums plus bias, scaled to int8 of ``result``; convolutions end in a relu."""
        sums = sums + self.constants[f"{layer}/bias"]
        (scale_in,), (scale_out,) = self.scales(source), self.scales(result)
        weight_scales = self.scales(f"{layer}/weights")
        zero = self.zero_point(result)
        low = -128 if layer == "dense" else max(-128, zero)
        out = np.empty(sums.shape, np.int8)
        for channel in range(sums.shape[-1]):
            scale = weight_scales[channel % len(weight_scales)]
            product = scale_in * scale
            if layer == "dense":  # TensorFlow Lite multiplies in float32 here, and only here
                product = float(np.float32(scale_in) * np.float32(scale))
            for index in np.ndindex(sums.shape[:-1]):
                value = doubly_rounded(int(sums[(*index, channel)]), product / scale_out) + zero
                out[(*index, channel)] = min(max(value, low), 127)
        return out


def doubly_rounded(value: int, real: float) -> int:
    """``value * real`` in fixed point: to 31 bits, then to an integer, to nearest each time."""
    fraction, shift = math.frexp(real)
    product = value * round(fraction * 2**31)
    high = (product + 2**30) // 2**31
    if shift >= 0:
        raise ValueError("the digits need no multiplier above one half")
    magnitude = (abs(high) + (1 << (-shift - 1))) >> -shift  # halves away from zero
    return magnitude if high >= 0 else -magnitude


def as_tflite(digits: Digits) -> bytes:
    """The same network as a .tflite file, whose outputs are the probabilities and the scores."""
    model = ModelBuilder()

    def tensor(name: str) -> int:
        info = digits.tensors[name]
        quantization = info["quantization"]
        return model.tensor(
            name, info["shape"], info["dtype"], quantization["scale"],
            digits.zero_point(name), digits.constants.get(name), quantization.get("axis"),
        )

    def layer(name: str) -> list[int]:
        return [tensor(f"{name}/weights"), tensor(f"{name}/bias")]

    image, conv1, pool, conv2, flatten, logits, result = map(
        tensor, ("image", "conv1", "pool", "conv2", "flatten", "logits", "probabilities")
    )
    shape = model.tensor("shape", (2,), "int32", data=[1, 256])
    model.op("CONV_2D", [image, *layer("conv1")], [conv1], padding="SAME", activation="RELU")
    model.op("MAX_POOL_2D", [conv1], [pool], window=2, stride=2)
    model.op("CONV_2D", [pool, *layer("conv2")], [conv2], padding="SAME", activation="RELU")
    model.op("RESHAPE", [conv2, shape], [flatten])
    model.op("FULLY_CONNECTED", [flatten, *layer("dense")], [logits])
    model.op("SOFTMAX", [logits], [result])
    return model.build([image], [result, logits])
