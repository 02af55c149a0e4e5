"""``--numerics tflm``: integers are those that TensorFlow Lite Micro's reference kernels gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.ir.numerics import Numerics
from tests.differential.backends import assert_backends_agree
from tests.differential.network import Values, steps
from tests.differential.recorded import ALONE, DIFFERENT, computed, equal, recorded

RECORDED = recorded()


def test_every_difference_is_recorded() -> None:
    assert RECORDED.keys() == {*DIFFERENT, *ALONE}


@pytest.mark.parametrize("pair", RECORDED, ids=" ".join)
def test_kernels_give_what_tflm_gave(pair: tuple[str, str]) -> None:
    one = RECORDED[pair]
    assert equal(computed(one.case, Numerics.TFLM), one.results)


@pytest.mark.parametrize("pair", DIFFERENT, ids=" ".join)
def test_where_tflm_differs_from_tflite_runtime(pair: tuple[str, str]) -> None:
    one = RECORDED[pair]
    assert not equal(computed(one.case, Numerics.TFLITE), one.results)


def test_backends_give_what_the_interpreter_does(tmp_path: Path) -> None:
    found = []
    for number, one in enumerate(RECORDED.values()):
        path = tmp_path / f"{number}.tflite"
        path.write_bytes(one.case.content)
        graph = load(path, numerics=Numerics.TFLM)
        values: Values = dict(zip(graph.inputs, one.case.inputs, strict=True))
        found += steps(graph, values)
    assert_backends_agree(found, tmp_path)
