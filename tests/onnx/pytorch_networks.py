"""Describes twelve networks as PyTorch's exporter writes them.

``python pytorch_networks.py FOLDER``, in an environment with torch and onnxscript, writes a text in
onnx's syntax for each, without the numbers of its weights.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper, printer
from torch import Tensor, nn
from torch.nn import functional


def conv(inputs: int, outputs: int, kernel: Any = 3, act: Any = nn.ReLU, **options: Any) -> Any:
    """A convolution with batch normalization and what follows it."""
    layers = [nn.Conv2d(inputs, outputs, kernel, bias=False, **options), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act()] if act else []))


class DsCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = conv(1, 24, (10, 4), stride=2, padding=(5, 1))
        self.blocks = nn.Sequential(*(
            nn.Sequential(conv(24, 24, padding=1, groups=24), conv(24, 24, 1)) for _ in range(4)
        ))
        self.last = nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.blocks(self.first(x)).mean((2, 3))).softmax(-1)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(inputs, outputs, stride=stride, padding=1),
            conv(outputs, outputs, act=None, padding=1),
        )
        same = inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.skip(x))


class ResNet8(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            conv(3, 8, padding=1), Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2),
            nn.AvgPool2d((4, 6)), nn.Flatten(), nn.Linear(32, 10),
        )


class InvertedResidual(nn.Module):
    """MobileNetV2's block."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(8, 48, 1, nn.ReLU6), conv(48, 48, 3, nn.ReLU6, padding=1, groups=48),
            conv(48, 8, 1, None),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class SqueezeExcite(nn.Module):
    """MobileNetV3's block."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = conv(8, 24, 1, nn.Hardswish)
        self.depthwise = conv(24, 24, 5, nn.Hardswish, stride=2, padding=2, groups=24)
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.project = conv(24, 16, 1, None)

    def forward(self, x: Tensor) -> Tensor:
        x = self.depthwise(self.expand(x))
        scale = functional.adaptive_avg_pool2d(x, 1)
        scale = functional.hardsigmoid(self.excite(functional.relu(self.squeeze(scale))))
        return self.project(x * scale)


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.last = nn.GRU(10, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.gru(x)[0][:, -1])


class BiLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 12, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lstm(x)[0][:, -1])


class GruStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRUCell(10, 24), nn.Linear(24, 5)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = self.cell(x, h)
        return self.last(h), h


class Causal(nn.Module):
    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.second = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        self.skip = nn.Conv1d(inputs, outputs, 1)
        self.past = (2 * dilation, 0)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first(functional.pad(x, self.past)))
        y = functional.relu(self.second(functional.pad(y, self.past)))
        return functional.relu(y + self.skip(x))


class Tcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Causal(9, 16, 1), Causal(16, 16, 2), Causal(16, 16, 4))
        self.last = nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.adaptive_avg_pool1d(self.blocks(x), 1).flatten(1))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(10, 32)
        self.place = nn.Parameter(torch.randn(1, 20, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
        self.encoder, self.last = nn.TransformerEncoder(layer, 2), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.encoder(self.embed(x) + self.place).mean(1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = conv(3, 8, padding=1), conv(8, 16, padding=1)
        self.low = conv(16, 24, padding=1)
        self.up2, self.merge2 = nn.ConvTranspose2d(24, 16, 2, 2), conv(32, 16, padding=1)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.merge1, self.last = conv(24, 8, padding=1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        x = self.low(functional.max_pool2d(second, 2))
        x = self.merge2(torch.cat((self.up2(x), second), 1))
        return self.last(self.merge1(torch.cat((self.up1(x), first), 1)))


class Autoencoder(nn.Sequential):
    def __init__(self) -> None:
        sizes, layers = (60, 32, 32, 8, 32, 32), []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        super().__init__(*layers, nn.Linear(32, 60))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spread = nn.Sequential(
            nn.Conv2d(16, 16, 5, groups=16, padding="same"), nn.GELU(), nn.BatchNorm2d(16)
        )
        self.mix = nn.Sequential(nn.Conv2d(16, 16, 1), nn.GELU(), nn.BatchNorm2d(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x + self.spread(x))


class ConvMixer(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.BatchNorm2d(16), Mixer(), Mixer(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
        )


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[tuple[int, ...], ...]]] = {
    "dscnn": (DsCnn, ((1, 1, 49, 10),)),
    "resnet8": (ResNet8, ((1, 3, 16, 24),)),
    "mobilenet_v2_block": (InvertedResidual, ((1, 8, 12, 10),)),
    "mobilenet_v3_block": (SqueezeExcite, ((1, 8, 12, 10),)),
    "gru": (Gru, ((1, 25, 10),)),
    "bilstm": (BiLstm, ((1, 15, 6),)),
    "gru_cell": (GruStep, ((1, 10), (1, 24))),
    "tcn": (Tcn, ((1, 9, 50),)),
    "transformer": (Transformer, ((1, 20, 10),)),
    "unet": (UNet, ((1, 3, 16, 24),)),
    "autoencoder": (Autoencoder, ((1, 60),)),
    "convmixer": (ConvMixer, ((1, 3, 24, 32),)),
}


def _decides(values: Any) -> bool:
    """Returns whether shapes may depend on a constant, as on sizes and scales."""
    return values.dtype.kind != "f" or (values.size <= 4 and bool((values == values.round()).all()))


def described(model: onnx.ModelProto) -> str:
    """Returns the model's nodes and the types of its weights; sizes and scales with numbers."""
    graph = model.graph
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:], model.functions[:]
    for node in graph.node:
        node.name = ""
        del node.metadata_props[:]
    for weights in [*graph.initializer]:
        if weights.dims and not _decides(numpy_helper.to_array(weights)):
            graph.initializer.remove(weights)
            graph.value_info.append(
                helper.make_tensor_value_info(weights.name, TensorProto.FLOAT, weights.dims)
            )
    model.producer_version = ""
    lines = printer.to_text(model).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def main() -> None:
    folder = Path(sys.argv[1])
    for name, (make, shapes) in NETWORKS.items():
        torch.manual_seed(0)
        program = torch.onnx.export(
            make().eval(), tuple(torch.randn(shape) for shape in shapes), dynamo=True,
            verbose=False,
        )
        (folder / f"{name}.txt").write_text(described(program.model_proto))


if __name__ == "__main__":
    main()
