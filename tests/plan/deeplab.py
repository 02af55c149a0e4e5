"""A float network for segmentation, drawn like DeepLab v3 on MobileNet v2 for 257x257 pixels."""

from __future__ import annotations

import numpy as np

from tests.tflite_builder import ModelBuilder

# Of each bottleneck: channels inside per channel of the input, channels, stride, dilation.
_BOTTLENECKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1), (6, 24, 1, 1),
    (6, 32, 2, 1), (6, 32, 1, 1), (6, 32, 1, 1),
    (6, 64, 1, 1), (6, 64, 1, 2), (6, 64, 1, 2), (6, 64, 1, 2),
    (6, 96, 1, 2), (6, 96, 1, 2), (6, 96, 1, 2),
    (6, 160, 1, 2), (6, 160, 1, 4), (6, 160, 1, 4),
    (6, 320, 1, 4),
)


class _Drawing:
    """Layers one after the other, with weights at random."""

    def __init__(self) -> None:
        self.model = ModelBuilder()
        self._rng = np.random.default_rng(1)
        self._count = 0

    def tensor(self, shape: tuple[int, ...]) -> int:
        self._count += 1
        return self.model.tensor(f"t{self._count}", shape)

    def _weights(self, shape: tuple[int, ...]) -> int:
        self._count += 1
        values = self._rng.normal(0, 0.1, shape).astype(np.float32)
        return self.model.tensor(f"w{self._count}", shape, data=values)

    def conv(
        self, x: int, size: int, given: int, channels: int, window: int = 1, stride: int = 1,
        activation: str = "RELU6",
    ) -> int:
        after = -(-size // stride)
        y = self.tensor((1, after, after, channels))
        weights = self._weights((channels, window, window, given))
        self.model.op(
            "CONV_2D", [x, weights, self._weights((channels,))], [y], padding="SAME",
            stride=stride, activation=activation,
        )
        return y

    def depthwise(self, x: int, size: int, channels: int, stride: int, dilation: int) -> int:
        after = -(-size // stride)
        y = self.tensor((1, after, after, channels))
        self.model.op(
            "DEPTHWISE_CONV_2D",
            [x, self._weights((1, 3, 3, channels)), self._weights((channels,))], [y],
            padding="SAME", stride=stride, dilation=dilation, activation="RELU6",
        )
        return y

    def resize(self, x: int, size: int, channels: int) -> int:
        y = self.tensor((1, size, size, channels))
        self._count += 1
        shape = self.model.tensor(f"s{self._count}", (2,), "int32", data=[size, size])
        self.model.op("RESIZE_BILINEAR", [x, shape], [y], align_corners=True)
        return y


def deeplab(size: int = 257, classes: int = 21) -> bytes:
    """The network as a .tflite file."""
    drawing = _Drawing()
    image = drawing.tensor((1, size, size, 3))
    x, at, channels = drawing.conv(image, size, 3, 32, 3, 2), -(-size // 2), 32
    for factor, after, stride, dilation in _BOTTLENECKS:
        inside = channels * factor
        y = drawing.conv(x, at, channels, inside) if factor > 1 else x
        y = drawing.depthwise(y, at, inside, stride, dilation)
        at = -(-at // stride)
        y = drawing.conv(y, at, inside, after, activation="NONE")
        if stride == 1 and after == channels:
            whole = drawing.tensor((1, at, at, after))
            drawing.model.op("ADD", [x, y], [whole])
            y = whole
        x, channels = y, after
    pooled = drawing.tensor((1, 1, 1, channels))
    drawing.model.op("AVERAGE_POOL_2D", [x], [pooled], window=at, stride=1)
    pooled = drawing.resize(drawing.conv(pooled, 1, channels, 256), at, 256)
    both = drawing.tensor((1, at, at, 512))
    drawing.model.op(
        "CONCATENATION", [pooled, drawing.conv(x, at, channels, 256)], [both], axis=3
    )
    x = drawing.conv(drawing.conv(both, at, 512, 256), at, 256, classes, activation="NONE")
    x = drawing.resize(x, size, classes)
    return drawing.model.build([image], [x])
