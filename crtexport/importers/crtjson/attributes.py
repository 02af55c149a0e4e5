"""Attributes of operators in model.json: made from the operators' records, the same way for each.

An operator's fields are its keys; a field with a default may be left out. Enumerations appear by
value, tuples as lists, nested records as objects.
"""

from __future__ import annotations

import enum
import functools
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import asdict, fields
from pydantic import BaseModel, ConfigDict, Field, create_model

from crtexport.ir.ops import Fused, Op

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
"""No unknown keys and no conversions: a typo or a string for a number is an error."""

OPERATORS: dict[str, type[Op]] = {
    kind.__name__: kind for kind in get_args(Op) if kind is not Fused
}
"""Every operator by its name in model.json; what is fused is an affair of exports."""

# Wide enough for any size, narrow enough that sums and products stay printable.
_Integer = Annotated[int, Field(ge=-(2**31), lt=2**31)]

R = TypeVar("R", bound=Struct)


@functools.cache
def attributes_model(kind: type[Struct]) -> type[BaseModel]:
    """The pydantic model of a record's fields."""
    hints = get_type_hints(kind)
    known: dict[str, Any] = {}
    for field in fields(kind):
        default = ... if field.default is NODEFAULT else _default(field.default)
        known[field.name] = (_annotation(hints[field.name]), default)
    return create_model(kind.__name__, __config__=STRICT, __doc__=kind.__doc__, **known)


def _annotation(hint: Any) -> Any:
    if hint is int:
        return _Integer
    if get_origin(hint) is tuple:
        return tuple[tuple(a if a is ... else _annotation(a) for a in get_args(hint))]  # type: ignore[misc]
    if isinstance(hint, type) and issubclass(hint, Struct):
        return attributes_model(hint)
    return hint


def _default(value: Any) -> Any:
    if isinstance(value, Struct):
        return attributes_model(type(value))(**asdict(value))
    return value


def decode(kind: type[R], attributes: BaseModel) -> R:
    """The record that validated attributes stand for."""
    hints = get_type_hints(kind)
    values = {name: getattr(attributes, name) for name in type(attributes).model_fields}
    return kind(
        **{
            name: decode(hints[name], value) if isinstance(value, BaseModel) else value
            for name, value in values.items()
        }
    )


def encode(value: Struct) -> dict[str, Any]:
    """The attributes of a record as JSON, without those that have their default value."""
    return {
        field.name: _plain(getattr(value, field.name))
        for field in fields(value)
        if getattr(value, field.name) != field.default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return encode(value) if isinstance(value, Struct) else value
