"""Where the bundled example is, and packages of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crtexport import pipeline
from tests.support import ROOT

DIGITS = ROOT / "docs" / "examples" / "digits" / "model.json"
DIGITS_IMAGES = DIGITS.with_name("test_images.npz")
DIGITS_LABELS = DIGITS.with_name("test_labels.npy")


def exported(folder: Path, *, board: str = "host", emit: pipeline.Emit = "c") -> Path:
    """A package of the digits example."""
    return pipeline.export(
        DIGITS, board=board, emit=emit, output=folder / f"digits-{board}-{emit}.tar"
    ).path


def hits(outputs: list[dict[str, list[list[int]]]]) -> int:
    """How many of the example's images were read right."""
    labels = np.load(DIGITS_LABELS)
    return sum(
        int(np.argmax(next(iter(row.values())))) == int(label)
        for row, label in zip(outputs, labels, strict=True)
    )
