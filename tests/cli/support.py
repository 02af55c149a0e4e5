"""The bundled example, and packages of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crtexport.pipeline import driver
from tests.helpers import ROOT

DIGITS = ROOT / "docs" / "examples" / "digits" / "model.json"
DIGITS_IMAGES = DIGITS.with_name("test_images.npz")
DIGITS_LABELS = DIGITS.with_name("test_labels.npy")


def exported(folder: Path, *, board: str = "host", emit: driver.Emit = "c") -> Path:
    """A package of the digits example."""
    return driver.export(
        DIGITS, board=board, emit=emit, output=folder / f"digits-{board}-{emit}.tar"
    ).path


def hits(outputs: list[dict[str, list[list[int]]]]) -> int:
    """Returns the number of the example's images that were read right."""
    labels = np.load(DIGITS_LABELS)
    return sum(
        int(np.argmax(next(iter(row.values())))) == int(label)
        for row, label in zip(outputs, labels, strict=True)
    )
