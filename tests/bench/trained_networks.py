"""Trains three small classifiers, on digits, drawn sounds and drawn pictures.

``python trained_networks.py FOLDER NAME...``, in an environment with torch, onnxscript and
scikit-learn, writes NAME.onnx, NAME_calibration.npz and NAME_test.npz with the array ``x``, and
NAME_labels.npy of what the test shows. The same seeds draw the same data; the weights that one
computer trains may differ from another's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

Data = tuple[Any, Any]  # samples (count, channels, rows, columns), and their classes
CALIBRATED = 100
RATE, WINDOW, HOP = 4000, 128, 64


def convolution(inputs: int, outputs: int, size: int = 3, **options: Any) -> nn.Sequential:
    options = {"padding": size // 2, **options}
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, bias=False, **options), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Residual(nn.Module):
    """Two convolutions, past which the input goes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = convolution(channels, channels)
        self.second = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, x: Any) -> Any:
        return torch.relu(x + self.second(self.first(x)))


def classified(*layers: nn.Module, channels: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


# -- digits: scikit-learn's 1,797 of 8x8 pixels


def digits() -> tuple[Data, nn.Module]:
    images, labels = load_digits(return_X_y=True)
    samples = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    network = classified(
        convolution(1, 12), nn.MaxPool2d(2), convolution(12, 24), channels=24, classes=10
    )
    return (samples, labels), network


# -- sounds: half a second of one of eight kinds, under noise, as a logarithmic spectrogram


def sound(kind: int, rng: np.random.Generator) -> Any:
    time = np.arange(RATE // 2) / RATE
    low, high = np.sort(rng.uniform(200, 1600, 2) + np.array([0, 200]))
    sweep = np.cumsum(np.linspace(low, high, len(time))) / RATE
    beat = np.sin(2 * np.pi * rng.uniform(5, 9) * time)
    tone = np.sin(2 * np.pi * low * time)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: tone,
        lambda: np.sin(2 * np.pi * sweep),
        lambda: np.sin(2 * np.pi * sweep[::-1]),
        lambda: tone * (beat > 0),
        lambda: np.sin(2 * np.pi * low * time + 12 * beat),
        lambda: tone + np.sin(2 * np.pi * (low + 700) * time),
        lambda: rng.normal(size=len(time)) * np.exp(-12 * np.mod(time + rng.uniform(), 0.17)),
        lambda: np.zeros(len(time)),
    )
    noise = rng.normal(size=len(time)) * rng.uniform(0.2, 1.2)
    return kinds[kind]() * rng.uniform(0.5, 1.0) + noise


def spectrogram(wave: Any) -> Any:
    """Returns 30 windows of 20 bands."""
    starts = range(0, len(wave) - WINDOW, HOP)
    frames = np.stack([wave[at : at + WINDOW] for at in starts]) * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames))[:, 1:61] ** 2
    return np.log(power.reshape(len(frames), 20, 3).sum(-1) + 1e-3)


def audio() -> tuple[Data, nn.Module]:
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 8, 1600)
    samples = np.stack([spectrogram(sound(kind, rng)) for kind in labels])
    blocks = [
        part for _ in range(3)
        for part in (convolution(16, 16, groups=16), convolution(16, 16, 1))
    ]
    network = classified(
        convolution(1, 16, 5, stride=2), *blocks, channels=16, classes=8
    )
    return (samples[:, None].astype(np.float32), labels), network


# -- pictures: one of six shapes, anywhere, of any size and color, under noise


def picture(kind: int, rng: np.random.Generator) -> Any:
    size, (row, column) = rng.uniform(4, 8), rng.uniform(8, 16, 2)
    turn = rng.uniform(-0.25, 0.25)
    rows, columns = np.mgrid[:24, :24] - np.array([row, column])[:, None, None]
    y = rows * np.cos(turn) - columns * np.sin(turn)
    x = rows * np.sin(turn) + columns * np.cos(turn)
    radius, largest = np.hypot(x, y), np.maximum(np.abs(x), np.abs(y))
    shapes = (
        radius < size,
        largest < size * 0.85,
        (y < size * 0.7) & (y > 2 * np.abs(x) - size),
        (np.minimum(np.abs(x), np.abs(y)) < size * 0.28) & (largest < size),
        (radius < size) & (radius > size * 0.55),
        (np.abs(y) < size * 0.3) & (np.abs(x) < size),
    )
    color = rng.uniform(0, 1, (3, 1, 1))
    other = np.mod(color + rng.uniform(0.3, 0.7, (3, 1, 1)), 1)
    return np.where(shapes[kind], color, other) + rng.normal(size=(3, 24, 24)) * 0.08


def image() -> tuple[Data, nn.Module]:
    rng = np.random.default_rng(12)
    labels = rng.integers(0, 6, 1800)
    samples = np.stack([picture(kind, rng) for kind in labels]).astype(np.float32)
    network = classified(
        convolution(3, 12, stride=2), Residual(12), convolution(12, 24, stride=2), Residual(24),
        channels=24, classes=6,
    )
    return (samples, labels), network


NETWORKS = {"digits": (digits, 360, 15), "audio": (audio, 300, 25), "image": (image, 300, 25)}
"""What makes each, how many of its samples test it, and how often it sees the others."""


def trained(network: nn.Module, data: Data, epochs: int) -> None:
    samples, labels = map(torch.tensor, data)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    steps = epochs * -(-len(samples) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(samples)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(samples[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    network.eval()


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        torch.manual_seed(0)
        make, held, epochs = NETWORKS[name]
        (samples, labels), network = make()
        order = np.random.default_rng(0).permutation(len(samples))
        test, rest = order[:held], order[held:]
        trained(network, (samples[rest], labels[rest]), epochs)
        torch.onnx.export(
            network, (torch.tensor(samples[:1]),), folder / f"{name}.onnx", dynamo=True,
            external_data=False, input_names=["x"], output_names=["y"], verbose=False,
        )
        np.savez(folder / f"{name}_calibration.npz", x=samples[rest[:CALIBRATED]])
        np.savez(folder / f"{name}_test.npz", x=samples[test][:, None])
        np.save(folder / f"{name}_labels.npy", labels[test])


main()
