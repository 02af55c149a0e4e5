"""Inputs and outputs of commands that run a model: .npz files, and tables for readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crtexport.cli.output import Output
from crtexport.mlf.arrays import Array, key_of
from crtexport.mlf.npz import load_npz, save_npz
from crtexport.mlf.reader import PackageTensor

PATTERN = "a fixed pattern"

_SHOWN = 10
_CLASSES = 2000  # outputs with more elements are images or the like, not scores of classes

Arrays = Mapping[str, Array]


def read_arrays(path: Path | None) -> Mapping[str, Array] | None:
    """Returns the arrays of an .npz file, each read when it is looked up; None without a file."""
    return None if path is None else load_npz(path)


def keep(path: Path | None, samples: Sequence[Arrays]) -> None:
    """Writes the outputs to the .npz file ``path``, if it isn't None; if there are several samples,
    arrays have an axis for them in front."""
    if path is None:
        return
    if len(samples) == 1:
        save_npz(path, samples[0])
        return
    save_npz(path, {key: np.stack([row[key] for row in samples]) for key in samples[0]})


def outputs_data(samples: Sequence[Arrays], input_file: Path | None) -> dict[str, Any]:
    """Returns inputs and outputs for JSON: for each sample the outputs by their C names. Floats
    that JSON can't represent (NaN, infinity) are text."""
    return {
        "inputs": PATTERN if input_file is None else str(input_file),
        "outputs": [
            {name: _plain(array.tolist()) for name, array in sample.items()} for sample in samples
        ],
    }


def keep_all(path: Path | None, models: Mapping[str, Sequence[Arrays]]) -> None:
    """Runs :func:`keep` for several models: names of arrays are ``MODEL/OUTPUT``."""
    count = max(map(len, models.values()), default=0)
    keep(path, [
        {f"{name}/{key}": array for name, rows in models.items() for key, array in rows[i].items()}
        for i in range(count)
    ])


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def show_outputs(
    out: Output, tensors: Sequence[PackageTensor], samples: Sequence[Arrays],
    input_file: Path | None,
) -> None:
    """Shows which inputs were used, and a table with one line per sample and output."""
    count = len(samples)
    out.line(f"inputs: {input_file or PATTERN} ({count} sample{'s' if count > 1 else ''})")
    out.line()
    out.table(
        "Outputs", ("sample", "output", "values", "largest at"),
        (
            (str(index), tensor.name, _values(sample[key_of(tensor)]),
             _largest(tensor, sample[key_of(tensor)]))
            for index, sample in enumerate(samples)
            for tensor in tensors
        ),
    )


def _values(array: Array) -> str:
    flat = array.reshape(-1)
    shown = " ".join(_number(value) for value in flat[:_SHOWN].tolist())
    return shown if flat.size <= _SHOWN else f"{shown} … {flat.size - _SHOWN} more"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _largest(tensor: PackageTensor, array: Array) -> str:
    """Returns, for outputs that may be scores of classes, the best class and its score as a real
    number."""
    flat = array.reshape(-1)
    if not 2 <= flat.size <= _CLASSES or flat.size != max(array.shape):
        return "-"
    index = int(flat.argmax())
    score = float(flat[index])
    quant = tensor.quantization
    if quant is not None and len(quant.scale) == 1:
        score = quant.scale[0] * (score - quant.zero_point[0])
    return f"{index} (score {score:.4g})"
