"""Samples for firmware: bytes of the right tensors, or an error that says which is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.firmware.project import sample_layout
from crtexport.firmware.samples import pack_samples
from crtexport.support.errors import CrtExportError
from tests.firmware.handmade import toy_inputs, toy_parts


def test_a_sample_is_the_bytes_of_its_tensors_by_name_or_in_order() -> None:
    for sample in toy_inputs(3):
        (packed,) = pack_samples(toy_parts(), [dict(reversed(sample.items()))])
        (listed,) = pack_samples(toy_parts(), [[sample["x"], sample["f"]]])
        assert packed == listed
        (x, f), size = sample_layout(toy_parts().inputs)
        assert packed[x : x + 40] == sample["x"].tobytes()
        assert packed[f : f + 12] == sample["f"].tobytes()
        assert len(packed) == size


def test_elements_are_packed_in_the_order_of_the_shape() -> None:
    (sample,), parts = toy_inputs(1), toy_parts()
    apart = np.repeat(sample["x"], 2, axis=1)[:, ::2]
    assert not apart.flags.c_contiguous
    assert pack_samples(parts, [{**sample, "x": apart}]) == pack_samples(parts, [sample])


@pytest.mark.parametrize(("name", "array", "wants", "given"), [
    ("x", np.zeros((1, 40), np.uint8), "int8 of shape [1, 40]", "uint8 of shape [1, 40]"),
    ("x", np.zeros((1, 40), np.bool_), "int8 of shape [1, 40]", "bool of shape [1, 40]"),
    ("x", np.zeros((1, 10), np.float32), "int8 of shape [1, 40]", "float32 of shape [1, 10]"),
    ("f", np.zeros(3, np.int32), "float32 of shape [3]", "int32 of shape [3]"),
    ("f", np.zeros(3, ">f4"), "float32 of shape [3]", ">f4 of shape [3]"),
    ("x", np.zeros((40, 1), np.int8), "int8 of shape [1, 40]", "int8 of shape [40, 1]"),
    ("f", np.zeros((3, 1), np.float32), "float32 of shape [3]", "float32 of shape [3, 1]"),
])
def test_as_many_bytes_of_another_type_or_shape_are_refused(
    name: str, array: npt.NDArray[Any], wants: str, given: str
) -> None:
    """They would fit: the firmware would compute something else."""
    good, bad = toy_inputs(2)
    with pytest.raises(CrtExportError) as caught:
        pack_samples(toy_parts(), [good, {**bad, name: array}])
    assert caught.value.problem == f"the model wants {wants}, this is {given}"
    assert caught.value.location == ("sample 1", name)


@pytest.mark.parametrize(("sample", "problem"), [
    ({"x": 0}, "the model's inputs are x, f, these are x"),
    ({"x": 0, "g": 0}, "the model's inputs are x, f, these are x, g"),
    ([0], r"the model has 2 inputs \(x, f\), these are 1"),
    ([0, 0, 0], r"the model has 2 inputs \(x, f\), these are 3"),
])
def test_other_inputs_are_refused(sample: Any, problem: str) -> None:
    with pytest.raises(CrtExportError, match=problem):
        pack_samples(toy_parts(), [sample])
