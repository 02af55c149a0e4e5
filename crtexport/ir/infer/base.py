"""The registry of inference rules, and their argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from crtexport.ir.graph import Graph
from crtexport.ir.ops import Op
from crtexport.ir.types import DType, TensorType
from crtexport.support.errors import CrtExportError

Inputs = tuple[TensorType | None, ...]


class InputTypes(Struct, frozen=True):
    """The types of a node's inputs. ``declared`` are the element types that the model gives the
    outputs, for operators (Quantize) that leave them to it. ``graphs`` are the node's own."""

    types: Inputs
    declared: tuple[DType, ...]
    graphs: tuple[Graph, ...] = ()

    def __getitem__(self, index: int) -> TensorType:
        """Returns a required input's type; raises CrtExportError where it was left out."""
        type_ = self.optional(index)
        if type_ is None:
            raise CrtExportError(f"input {index} is missing, and it is not optional")
        return type_

    def optional(self, index: int) -> TensorType | None:
        return self.types[index] if index < len(self.types) else None

    def all(self) -> list[TensorType]:
        """Returns the types of all inputs, none of which may be left out."""
        return [self[index] for index in range(len(self.types))]


Rule = Callable[[Any, InputTypes], tuple[TensorType, ...]]


class Inference(Struct, frozen=True):
    """A rule and how many inputs it takes: ``required``, and at most ``most`` (None: any)."""

    rule: Rule
    required: int
    most: int | None


INFERENCES: dict[type, Inference] = {}
"""The rules of operators, and of marks: all operators that have one and no rule of their own."""


def inference_of(kind: type[Op]) -> Inference:
    """Returns the rule of an operator. Raises KeyError for one that has none."""
    for known in kind.__mro__:
        if known in INFERENCES:
            return INFERENCES[known]
    raise KeyError(kind)


def infers(
    *ops: type[Op], required: int = 1, most: int | None = -1
) -> Callable[[Rule], Rule]:
    """Registers the rule of operators; ``most`` is ``required`` unless given."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            if op in INFERENCES:
                raise ValueError(f"{op.__name__} has two inference rules")
            INFERENCES[op] = Inference(rule, required, required if most == -1 else most)
        return rule

    return register


def same(type_: TensorType) -> TensorType:
    """Returns the type without its quantization."""
    return TensorType(type_.dtype, type_.shape)


def counted(required: int, most: int | None) -> str:
    """Returns a phrase such as "2 or 3 inputs", for messages."""
    if most is None:
        return f"at least {required} inputs"
    count = f"{required}" if most == required else f"{required} or {most}"
    return f"{count} input" if most == 1 else f"{count} inputs"
