"""One operator in terms of TensorFlow Lite's schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from msgspec import Struct, field

from crtexport.ir.graph import Graph, Node
from crtexport.ir.ops import Activation
from crtexport.ir.types import TensorType

Value = int | float | bool | str | npt.NDArray[np.int32]
Steering = npt.NDArray[np.int32]


class TfliteForm(Struct, frozen=True):
    """An operator by the names of TensorFlow Lite's schema.

    ``code`` is its builtin operator; ``options`` the kind of its table of options ("": none), and
    ``fields`` the content of that table. ``steering`` are constants that follow the node's inputs,
    ``leading`` those that come before them, ``between`` those that come after the first. ``order``
    has the positions of the node's inputs in the file's order, None for omitted inputs, if that
    isn't the node's own order. ``intermediates`` are the types of tensors that only carry scales. A
    custom operator has the code "custom:" and its name, and ``custom_options``.
    """

    code: str
    options: str = ""
    fields: Mapping[str, Value] = field(default_factory=dict)
    steering: tuple[Steering, ...] = ()
    leading: tuple[Steering, ...] = ()
    between: tuple[Steering, ...] = ()
    order: tuple[int | None, ...] = ()
    intermediates: tuple[TensorType, ...] = ()
    custom_options: bytes = b""


Former = Callable[[Graph, Node], TfliteForm]


def by_operator(write: Callable[[Any], TfliteForm]) -> Former:
    """Returns a writer of forms that depend on the operator alone."""
    return lambda _, node: write(node.op)


def clamp(activation: Activation) -> dict[str, Value]:
    """Returns the field of a fused activation."""
    code = getattr(tflite.ActivationFunctionType, activation.name)
    return {"FusedActivationFunction": int(code)}


def integers(values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Returns a constant list of sizes, axes and the like."""
    return np.array(values, "<i4")
