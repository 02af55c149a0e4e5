"""Stores of a vector's first lanes leave what other stores put behind them."""

from __future__ import annotations

import numpy as np
import pytest

from crtexport.backends.c.helpers import select_helpers
from crtexport.backends.c.literals import STORAGE
from crtexport.backends.c.vectors import access_key, types_key, vector_type
from crtexport.firmware.board import load_board
from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.firmware.run import run
from crtexport.kir.language import LANE_SOURCES, Scalar
from crtexport.lowering.registry import SCALAR_OF
from tests.firmware.handmade import ANY_HEADER
from tests.helpers import require

CODE = """\
#include "tvmgen_toy.h"
#include <stddef.h>
%(helpers)s
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs)
{
    const %(element)s *a = inputs->a;
    %(element)s *q = outputs->q;
    const %(vector)s ones = crt_%(load)s(a, %(lanes)d);
    for (int i = 0; i < 2 * %(lanes)d; i++) {
        q[i] = 7;
    }
    /* The last of all lanes, then all before it, but with fewer than there are. */
    crt_%(store)s(&q[%(lanes)d - 1], ones, 1);
    crt_%(store)s(q, ones, %(lanes)d - 1);
    crt_%(store)s(&q[%(lanes)d + 1], ones, 1);
    return 0;
}
"""
ACCESSES = [
    (type_, element) for type_, elements in LANE_SOURCES.items() for element in elements
    if type_.itemsize == 16
]


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("type_", "element"), ACCESSES, ids=[f"{t.value} of {e.value}" for t, e in ACCESSES]
)
def test_what_lies_behind_a_vectors_first_lanes_stays(type_: Scalar, element: Scalar) -> None:
    """GCC 12 takes predicated stores of MVE for those of all lanes: it left out earlier ones."""
    board = load_board("mps3_an547")
    require(board.toolchain.compiler[0])
    require("qemu-system-arm")
    load, store = (access_key(type_, element, stores=stores) for stores in (False, True))
    helpers = select_helpers([types_key(type_), load, store])
    source = CODE % {
        "helpers": "\n".join(f"{one.include}\n{one.text}" for one in helpers),
        "element": STORAGE[element], "vector": vector_type(type_), "load": load, "store": store,
        "lanes": type_.lanes,
    }
    dtype = {scalar: dtype for dtype, scalar in SCALAR_OF.items()}[element]
    parts = FirmwareParts(
        module="toy", inputs=(TensorPart("a", "a", dtype, (type_.lanes,)),),
        outputs=(TensorPart("q", "q", dtype, (2 * type_.lanes,)),),
        header=ANY_HEADER, sources={"toy_lib0.c": source},
    )
    ones = np.ones(type_.lanes, dtype.value)
    (found,) = run(parts, board, [[ones]], timeout=60).outputs[0]
    wanted = np.full(2 * type_.lanes, 7, dtype.value)
    wanted[: type_.lanes], wanted[type_.lanes + 1] = 1, 1
    np.testing.assert_array_equal(found.reshape(-1), wanted)
