"""tflite-micro, TensorFlow Lite Micro for a PC, as a reference runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crtexport.ir.numerics import FORMER_WORDS, Numerics
from crtexport.simulation.reference import ReferenceModel
from crtexport.support.errors import CrtExportError
from tests.differential.recorded import DIFFERENT, equal, recorded
from tests.helpers import reference, require_reference


def test_it_gives_again_what_was_recorded() -> None:
    known = recorded()
    for pair in DIFFERENT:
        model = reference(known[pair].case.content, "tflite-micro")
        assert equal(model.run(known[pair].case.inputs), known[pair].results), pair


def test_all_tensors_of_a_run_can_be_read() -> None:
    one = recorded()["relu6", "int8"]
    model = reference(one.case.content, "tflite-micro")
    (output,) = model.run(one.case.inputs)
    tensors = model.intermediate(one.case.inputs)
    assert any(np.array_equal(value, output) for value in tensors.values())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    one = recorded()["relu6", "int8"]
    model = reference(one.case.content, "tflite-micro")
    with pytest.raises(CrtExportError, match="the model has 1 inputs, not 0"):
        model.run([])
    path = tmp_path / "notes.tflite"
    path.write_bytes(b"not a model at all, only text")
    with pytest.raises(CrtExportError, match=r"notes\.tflite: tflite-micro: .*identifier"):
        ReferenceModel(path, runtime=require_reference("tflite-micro"))


def test_numerics_are_known_by_their_former_words_too() -> None:
    assert {word: Numerics.of(word).value for word in FORMER_WORDS} == FORMER_WORDS
    assert [Numerics.of(numerics.value) for numerics in Numerics] == [*Numerics]
    with pytest.raises(CrtExportError, match="'triple' names no numerics"):
        Numerics.of("triple")
