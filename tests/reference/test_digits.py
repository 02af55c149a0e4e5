"""The digits example is what its README says, and what its script makes."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.pipeline import driver
from crtexport.simulation.library import load_objects
from crtexport.simulation.simulation import Simulation
from tests.backends.llvm.llvm_support import objects_of
from tests.helpers import require_module
from tests.packed_functions import simulation_of
from tests.reference.digits import FOLDER, Digits, as_tflite
from tests.tflite_builder import run_reference

Array = npt.NDArray[Any]

FILES = ("model.json", "model.safetensors", "test_images.npz", "test_labels.npy")


@cache
def script() -> ModuleType:
    """The example's train.py as a module."""
    require_module("sklearn")
    spec = importlib.util.spec_from_file_location("digits_train", FOLDER / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def held_out() -> tuple[Array, Array]:
    """All held-out images as the network takes them (360,1,8,8,1), and their labels."""
    train = script()
    _, split = train.split_digits()
    graph = driver.load(FOLDER / "model.json")
    images = train.quantize(split.images, graph.type(graph.inputs[0]).quant)
    return images[:, None], split.labels


def stated(kind: str) -> tuple[int, float]:
    """Hits and accuracy of one kind ("int8", "float64") in the README's table."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {kind}[^|]*\| (\d+) \| ([\d.]+) % \|$", text, re.MULTILINE)
    assert row is not None
    return int(row[1]), float(row[2])


@cache
def exported() -> Simulation:
    """The example's code for this computer, loaded."""
    require_module("llvmlite")
    board = driver.resolve_board("host")
    prepared = driver.prepare(driver.load(FOLDER / "model.json"), board)
    objects = objects_of(prepared.artifact, board.target)
    return simulation_of(prepared.artifact, load_objects(objects.values()))


def test_readme_states_the_accuracy_of_the_exported_code() -> None:
    images, labels = held_out()
    hits = sum(
        int(exported().run([image])[0].argmax() == label)
        for image, label in zip(images, labels, strict=True)
    )
    assert stated("int8") == (hits, round(100 * hits / len(labels), 2))


def test_separate_integer_model_scores_the_same_hits() -> None:
    images, labels = held_out()
    digits = Digits()
    hits = sum(
        int(digits.logits(image).argmax() == label)
        for image, label in zip(images, labels, strict=True)
    )
    assert hits == stated("int8")[0]


def test_exported_code_equals_the_reference_runtime() -> None:
    content = as_tflite(Digits())
    digits = Digits()
    for image in held_out()[0][:60]:
        probabilities, logits = run_reference(content, image)
        np.testing.assert_array_equal(exported().run([image])[0], probabilities)
        np.testing.assert_array_equal(digits.logits(image), logits[0])


def test_bundled_images_are_the_first_held_out_ones_and_all_recognized() -> None:
    bundled = np.load(FOLDER / "test_images.npz")
    labels = np.load(FOLDER / "test_labels.npy")
    images, all_labels = held_out()
    assert bundled.files == ["image"]
    np.testing.assert_array_equal(bundled["image"], images[:12])
    np.testing.assert_array_equal(labels, all_labels[:12])
    found = [int(exported().run([image])[0].argmax()) for image in bundled["image"]]
    assert found == labels.tolist()


def test_training_again_writes_the_same_files(tmp_path: Path) -> None:
    accuracy = script().main(tmp_path)
    hits, percent = stated("float64")
    assert (round(360 * accuracy), round(100 * accuracy, 2)) == (hits, percent)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 60_000
