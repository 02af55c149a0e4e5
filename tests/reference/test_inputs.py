"""The shared reference inputs and hash are what the device figures were measured with."""

from __future__ import annotations

import numpy as np

from tests.helpers import fnv1a, hashed_input, standard_input


def test_fnv1a_matches_published_vectors() -> None:
    assert fnv1a(b"") == 0x811C9DC5
    assert fnv1a(b"a") == 0xE40C292C
    assert fnv1a(b"foobar") == 0xBF9CF968


def test_fnv1a_continues_from_a_state() -> None:
    assert fnv1a(b"bar", fnv1a(b"foo")) == fnv1a(b"foobar")


def test_standard_input_follows_its_formula() -> None:
    assert standard_input((2, 4)).tolist() == [[-117, -80, -43, -6], [31, 68, 105, -114]]


def test_hashed_inputs_follow_their_formula() -> None:
    for k in (0, 1, 15):
        expected = [
            ((((i + 1000003 * k) * 2654435761) % 2**32 >> 13) & 255) - 128 for i in range(500)
        ]
        assert hashed_input(k, (500,)).tolist() == expected
        assert hashed_input(k, (500,)).dtype == np.int8
