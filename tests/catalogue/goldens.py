"""``python -m tests.catalogue.goldens CHECKOUT``: what TensorFlow Lite Micro's tests expect.

CHECKOUT is a checkout of tensorflow/tflite-micro. Its integration tests and examples bring
networks, inputs and the outputs that they must give on the device. Each network is exported with
``--numerics tflm`` as C and as objects of LLVM, run on this computer, and compared with those
outputs and with what TensorFlow Lite Micro's Python package gives. Prints what was found, and ends
with 1 where the runtime isn't met bit for bit, or an output is further from an expected one than
its test allows.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

import crtexport
from crtexport.ir.numerics import Numerics
from crtexport.mlf.reader import open_package
from crtexport.simulation.package import load_package
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import find_reference

Array = npt.NDArray[Any]

_MICRO = Path("tensorflow/lite/micro")
_SPEECH = _MICRO / "examples" / "micro_speech"
_FRAME, _STRIDE = 480, 320
"""Samples of 30 and 20 ms at 16 kHz."""


class Golden(Struct, frozen=True):
    """Runs of a network one after another, with the outputs that a test expects of the first.

    ``allowed``: the difference that TensorFlow Lite Micro's test tolerates.
    """

    name: str
    model: Path
    runs: Sequence[Sequence[Array]]
    expected: Array
    allowed: int = 0


class Found(Struct, frozen=True):
    """How far outputs are from those expected: the largest difference, and how many differ; whether
    all are the runtime's."""

    furthest: int
    differing: int
    as_runtime: bool


def goldens(checkout: Path) -> Iterator[Golden]:
    """Yields what the tests of a checkout expect."""
    yield from _layers(checkout / _MICRO / "integration_tests")
    yield from _denoiser(checkout / _MICRO / "examples" / "dtln")
    yield from _features(checkout / _SPEECH)


def _layers(folder: Path) -> Iterator[Golden]:
    """Yields single layers of networks, by their tables; their tests allow a difference of 1."""
    for model in sorted(folder.glob("*/*/*.tflite")):
        inputs = sorted(model.parent.glob(f"{model.stem}_input*.csv"))
        (golden,) = model.parent.glob(f"{model.stem}_golden_*.csv")
        yield Golden(
            f"{model.parent.parent.name}/{model.stem}", model, [[*map(_table, inputs)]],
            _table(golden), 1,
        )


def _table(file: Path) -> Array:
    return np.loadtxt(file, delimiter=",", dtype=file.stem.rpartition("_")[2]).reshape(-1)


def _denoiser(folder: Path) -> Iterator[Golden]:
    source = folder / "dtln_inout_data.cc"
    yield Golden(
        "dtln", folder / "dtln_noise_suppression.tflite", [[_numbers(source, "feature_data")]],
        _numbers(source, "golden_ref"),
    )


def _features(folder: Path) -> Iterator[Golden]:
    source = folder / "micro_speech_test.cc"
    for word in ("no", "yes"):
        test = source.read_text(encoding="utf-8").partition(f"{word.title()}FeatureTest")[2]
        sound = _sound(folder / "testdata" / f"{word}_30ms.wav")
        yield Golden(
            f"micro_speech, features of {word}",
            folder / "models" / "audio_preprocessor_int8.tflite",
            [[sound[:_FRAME]]], _listed(test, "expected_feature"),
        )


def _numbers(source: Path, name: str) -> Array:
    return _listed(source.read_text(encoding="utf-8"), name)


def _listed(text: str, name: str) -> Array:
    found = re.search(rf"\b{name}\[\w*\]\s*=\s*\{{([^}}]*)\}}", text)
    if found is None:
        raise ValueError(f"there is no array {name}")
    return np.array([int(word, 0) for word in re.findall(r"[-\w]+", found[1])], np.int8)


def _sound(file: Path) -> Array:
    with wave.open(str(file)) as recording:
        return np.frombuffer(recording.readframes(recording.getnframes()), "<i2").astype(np.int16)


def words_heard(checkout: Path) -> list[tuple[str, str]]:
    """Returns, for each second of sound of micro_speech's test, the word that it says and that
    which the two networks hear."""
    folder, found = checkout / _SPEECH, []
    for recording, said in (("no", "no"), ("yes", "yes"), ("silence", "silence"),
                            ("noise", "silence")):
        sound = _sound(folder / "testdata" / f"{recording}_1000ms.wav")
        frames = [
            [sound[start : start + _FRAME]]
            for start in range(0, len(sound) - _FRAME + 1, _STRIDE)
        ]
        features = _exported(folder / "models" / "audio_preprocessor_int8.tflite", frames, "c")
        heard = _exported(
            folder / "models" / "micro_speech_quantized.tflite",
            [[np.concatenate([row[0].reshape(-1) for row in features])]], "c",
        )
        found.append((said, ("silence", "unknown", "yes", "no")[int(heard[0][0].argmax())]))
    return found


def compared(golden: Golden) -> Found:
    """Returns how far a network's outputs are from what is expected."""
    with ReferenceModel(golden.model, runtime=find_reference(Numerics.TFLM)) as runtime:
        theirs = [runtime.run(_shaped(golden.model, row)) for row in golden.runs]
    as_runtime, first = True, theirs[0]
    for emit in ("c", "llvm"):
        ours = _exported(golden.model, golden.runs, emit)
        as_runtime &= all(
            np.array_equal(a, b)
            for mine, other in zip(ours, theirs, strict=True)
            for a, b in zip(mine, other, strict=True)
        )
        first = ours[0]
    apart = np.abs(first[0].reshape(-1).astype(np.int64) - golden.expected.astype(np.int64))
    return Found(int(apart.max(initial=0)), int(np.count_nonzero(apart)), as_runtime)


def _exported(model: Path, runs: Sequence[Sequence[Array]], emit: str) -> list[list[Array]]:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "model.tar"
        crtexport.export(model, emit=emit, numerics="tflm", output=package)
        simulation = load_package(open_package(package))
        return [[*simulation.run(_shaped(model, row))] for row in runs]


def _shaped(model: Path, row: Sequence[Array]) -> list[Array]:
    graph = crtexport.load(model)
    return [
        array.reshape(graph.type(tensor).shape)
        for tensor, array in zip(graph.inputs, row, strict=True)
    ]


def main() -> None:
    """Compares the networks of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default="", help="networks whose name contains this")
    chosen = parser.parse_args()
    wrong = 0
    for golden in goldens(chosen.checkout):
        if chosen.only in golden.name:
            found = compared(golden)
            right = found.as_runtime and found.furthest <= golden.allowed
            wrong += not right
            sys.stdout.write(
                f"{golden.name}: {found.differing} of {golden.expected.size} differ, by at most"
                f" {found.furthest} ({golden.allowed} allowed);"
                f" {'as' if found.as_runtime else 'NOT as'} TensorFlow Lite Micro\n"
            )
            sys.stdout.flush()
    for said, heard in words_heard(chosen.checkout):
        wrong += said != heard
        sys.stdout.write(f"micro_speech: {said} is heard as {heard}\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
