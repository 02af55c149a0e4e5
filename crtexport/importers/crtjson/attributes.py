"""Attributes of operators in model.json: derived from the operators' records, by the same rules for
each.

An operator's fields are its keys; a field with a default may be left out. Enumerations appear by
value, tuples as lists, nested records as objects.
"""

from __future__ import annotations

import enum
import functools
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Meta, Struct, defstruct
from msgspec.structs import asdict, fields

from crtexport.ir import ops
from crtexport.ir.ops import INTERNAL, Op

OPERATORS: dict[str, type[Op]] = {
    kind.__name__: kind for kind in ops.OPERATORS if kind not in INTERNAL
}
"""Every operator by its name in model.json, without those that only exports create."""

# Wide enough for any size, narrow enough that sums and products stay printable.
_Integer = Annotated[int, Meta(ge=-(2**31), lt=2**31)]

R = TypeVar("R", bound=Struct)


@functools.cache
def attributes_model(kind: type[Struct]) -> type[Struct]:
    """Returns a record type with these keys, which rejects all others."""
    hints = get_type_hints(kind)
    keys: list[Any] = []
    for field in fields(kind):
        key = (field.name, _annotation(hints[field.name]))
        keys.append(key if field.default is NODEFAULT else (*key, _default(field.default)))
    return defstruct(
        kind.__name__, keys, namespace={"__doc__": kind.__doc__}, module=__name__, frozen=True,
        kw_only=True, forbid_unknown_fields=True,
    )


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


def decode(kind: type[R], attributes: Struct) -> R:
    """Returns the record described by validated attributes."""
    hints = get_type_hints(kind)
    return kind(**{
        name: decode(hints[name], value) if isinstance(value, Struct) else value
        for name, value in asdict(attributes).items()
    })


def encode(value: Struct) -> dict[str, Any]:
    """Returns the attributes of a record as JSON, without those that have their default value."""
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
