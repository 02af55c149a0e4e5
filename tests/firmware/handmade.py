"""A model written by hand: what a backend would give, small enough to check in the head."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from crtexport.firmware.parts import FirmwareParts, TensorPart
from crtexport.ir.types import DType

HEADER = """\
#include <stdint.h>
struct tvmgen_toy_inputs { void *x; void *f; };
struct tvmgen_toy_outputs { void *y; void *g; };
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs);
"""

ANY_HEADER = """\
#include <stdint.h>
struct tvmgen_toy_inputs { void *a; void *b; };
struct tvmgen_toy_outputs { void *q; };
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *, struct tvmgen_toy_outputs *);
"""
"""Of a model with one output and one or two inputs of any type."""

SOURCE = """\
#include "tvmgen_toy.h"
#include <string.h>
static int32_t workspace[64];
static const int32_t weights[4] = { 3, -5, 7, 11 };
int32_t tvmgen_toy_run(struct tvmgen_toy_inputs *inputs, struct tvmgen_toy_outputs *outputs)
{
    const int8_t *x = inputs->x;
    const float *f = inputs->f;
    int32_t *y = outputs->y;
    float *g = outputs->g;
    for (int i = 0; i < 40; i++) {
        workspace[i] = (int32_t)(((int64_t)x[i] * 1000003 * weights[i & 3]) / 7);
    }
    memcpy(y, workspace, 160);
    for (int i = 0; i < 3; i++) {
        g[i] = f[i] * 1.5f + 0.25f;
    }
    return 0;
}
"""


def toy_parts(source: str = SOURCE) -> FirmwareParts:
    """Inputs x (int8, 40) and f (float32, 3); outputs y (int32, 40) and g (float32, 3)."""
    return FirmwareParts(
        module="toy",
        inputs=(
            TensorPart("x", "x", DType.INT8, (1, 40)), TensorPart("f", "f", DType.FLOAT32, (3,))
        ),
        outputs=(
            TensorPart("y", "y", DType.INT32, (1, 40)), TensorPart("g", "g", DType.FLOAT32, (3,))
        ),
        header=HEADER,
        sources={"toy_lib0.c": source},
    )


def toy_inputs(count: int) -> list[dict[str, npt.NDArray[np.generic]]]:
    rng = np.random.default_rng(7)
    return [
        {
            "x": rng.integers(-128, 128, (1, 40), dtype=np.int8),
            "f": rng.standard_normal(3).astype(np.float32),
        }
        for _ in range(count)
    ]


def toy_expected(sample: dict[str, npt.NDArray[np.generic]]) -> npt.NDArray[np.int32]:
    weights = np.array([3, -5, 7, 11], dtype=np.int64)
    product = sample["x"].astype(np.int64) * 1000003 * np.tile(weights, 10)
    return (np.sign(product) * (np.abs(product) // 7)).astype(np.int32)
