"""How tests run a kernel that was made for a node: an array for each of its buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.kernels.registry import Derived, InputTensor, Lowered, OutputTensor, Scratch

Array = npt.NDArray[Any]
_RUBBISH = 0x5A


def bound(
    lowered: Lowered, tensor: Callable[[InputTensor | OutputTensor], Array]
) -> list[Array]:
    """What ``lowered``'s buffers are bound to, in order: ``tensor`` has the node's own arrays;
    scratch is full of rubbish."""
    arrays: list[Array] = []
    for buffer, arg in zip(lowered.kernel.buffers, lowered.args, strict=True):
        match arg:
            case InputTensor() | OutputTensor():
                arrays.append(tensor(arg))
            case Derived():
                arrays.append(arg.values)
            case Scratch():
                rubbish = np.full(buffer.size * buffer.dtype.itemsize, _RUBBISH, np.uint8)
                kind = "f" if buffer.dtype.is_float else "i"
                arrays.append(rubbish.view(f"{kind}{buffer.dtype.itemsize}"))
    return arrays
