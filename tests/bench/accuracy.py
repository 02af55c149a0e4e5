"""How many predictions are right: of a float network, of its integers in ONNX Runtime, and of the
same integers in exported firmware in QEMU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from crtexport import package_actions
from crtexport.mlf.arrays import Array
from crtexport.pipeline import driver
from crtexport.quantization.quantize import Activations, quantize
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import find_runtime

NAMES = ("digits", "audio", "image")
_WORKER = Path(__file__).with_name("trained_networks.py")


class Accuracy(Struct, frozen=True):
    """Of ``samples``, how many predictions are right; ``other`` counts predictions, and
    ``differing`` numbers of all ``outputs``, that the board gives and ONNX Runtime doesn't.
    ``sqnr``: of the outputs on the data of the calibration, in dB. ``instructions``: of one
    inference, of the float network and of the integers; ``constants`` and ``workspace`` are bytes
    of both."""

    name: str
    samples: int
    exact: int
    runtime: int
    board: int
    other: int
    differing: int
    outputs: int
    sqnr: float
    instructions: tuple[int | None, int | None]
    constants: tuple[int, int]
    workspace: tuple[int, int]


def train(python: str, folder: Path, names: Sequence[str] = NAMES) -> None:
    """Trains networks in the Python of an environment with torch and scikit-learn."""
    subprocess.run(
        (python, "-W", "ignore", str(_WORKER), str(folder), *names), check=True,
        capture_output=True,
    )


def measure(
    folder: Path, name: str, board: str, activations: Activations = "uint8",
    most: int | None = None,
) -> Accuracy:
    """Quantizes a trained network, exports both for ``board`` and predicts its test set there:
    ``most`` samples of it."""
    paths = folder / f"{name}.onnx", folder / f"{name}_{activations}.onnx"
    made = quantize(paths[0], folder / f"{name}_calibration.npz", paths[1], activations=activations)
    x = np.load(folder / f"{name}_test.npz")["x"][:most]
    labels = np.load(folder / f"{name}_labels.npy")[:most]
    theirs = [_in_runtime(path, x) for path in paths]
    packages = [
        driver.export(path, board=board, output=path.with_suffix(".tar"))
        for path in paths
    ]
    # Of the float network one sample, for its instructions.
    before = package_actions.run(packages[0].path, {"x": x[:1]}, trust_package=True)
    after = package_actions.run(
        packages[1].path, {"x": x}, trust_package=True, timeout=600
    )
    ours = np.stack([row[0] for row in after.outputs]).reshape(theirs[1].shape)
    artifacts = [package.artifact for package in packages]
    found = [*(each.argmax(-1) for each in theirs), ours.argmax(-1)]
    right = [int((each == labels).sum()) for each in found]
    return Accuracy(
        name, len(x), right[0], right[1], right[2], int((found[1] != found[2]).sum()),
        int((ours != theirs[1]).sum()), ours.size,
        min(output.sqnr for output in made.outputs if output.sqnr is not None),
        (before.instructions_second, after.instructions_second),
        (artifacts[0].constants_size, artifacts[1].constants_size),
        (artifacts[0].workspace_total, artifacts[1].workspace_total),
    )


def _in_runtime(path: Path, x: Array) -> Array:
    """Returns ONNX Runtime's outputs, (samples, classes)."""
    with ReferenceModel(path, runtime=find_runtime("onnxruntime")) as runtime:
        return np.stack([runtime.run([row])[0].reshape(-1) for row in x])


ROWS = (
    "float, right", "integers in ONNX Runtime, right", "integers on the board, right",
    "predictions that differ from ONNX Runtime's", "scores that do",
    "signal to error of the outputs", "bytes of constants, float", "integers",
    "bytes of workspace, float", "integers", "instructions, float", "integers",
)


def rows(found: Accuracy) -> Iterator[str]:
    """Yields the cells of a column."""
    total = found.samples
    for right in (found.exact, found.runtime, found.board):
        yield f"{right} of {total}, {100 * right / total:.1f} %"
    yield str(found.other)
    yield f"{found.differing} of {found.outputs:,}"
    yield f"{found.sqnr:.1f} dB"
    for pair in (found.constants, found.workspace, found.instructions):
        for number in pair:
            yield "-" if number is None else f"{number:,}"
