"""Records from data of others: pydantic checks it by a model that follows from the record.

A record's fields are the keys; one with a default may be left out. Limits are msgspec's ``Meta``;
``extra={"read": function}`` names what turns a value as people write it into the field's.
``Literal``, unions of records with tags, tuples and dictionaries mean what they mean to msgspec.
What a record's ``check()`` raises as ValueError is told with the place of the record.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import FieldInfo, fields
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    create_model,
)

__all__ = ["Extra", "model_of", "record"]

Extra = Literal["forbid", "ignore"]
"""What becomes of unknown keys."""

R = TypeVar("R", bound=Struct)


@runtime_checkable
class _Checked(Protocol):
    def check(self) -> None: ...


def record(kind: type[R], data: object, extra: Extra = "forbid") -> R:
    """The record that ``data`` describes. Raises pydantic.ValidationError."""
    found: R = _adapter(kind, extra).validate_python(data)
    return found


@functools.cache
def model_of(kind: type[Struct], extra: Extra = "forbid") -> type[BaseModel]:
    """The pydantic model of a record's keys."""
    hints = get_type_hints(kind, include_extras=True)
    keys: dict[str, Any] = {}
    tag = kind.__struct_config__
    if tag.tag_field is not None:
        keys[tag.tag_field] = (Literal[tag.tag], ...)
    for field in fields(kind):
        keys[field.name] = (_annotation(hints[field.name], extra), _default(field))
    config = ConfigDict(frozen=True, extra=extra, defer_build=True)
    return create_model(kind.__name__, __config__=config, __doc__=kind.__doc__, **keys)


@functools.cache
def _adapter(kind: type[Struct], extra: Extra) -> TypeAdapter[Any]:
    return TypeAdapter(_annotation(kind, extra))


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return Field(default_factory=field.default_factory)
    return ... if field.default is NODEFAULT else field.default


def _annotation(hint: Any, extra: Extra) -> Any:
    """``hint`` as pydantic takes it; where records are wanted, models that become records."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        make = functools.partial(_made, hint)
        return Annotated[model_of(hint, extra), AfterValidator(make)]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (None, Literal):
        return hint
    if origin is Annotated:
        inner, *limits = arguments
        rules = [rule for limit in limits if isinstance(limit, Meta) for rule in _rules(limit)]
        return Annotated[(_annotation(inner, extra), *rules)]
    members = tuple(a if a is ... else _annotation(a, extra) for a in arguments)
    if origin in (Union, UnionType):
        named = _tag_field(arguments)
        union = functools.reduce(operator.or_, members)
        return Annotated[union, Field(discriminator=named)] if named else union
    return origin[members]


def _tag_field(kinds: Sequence[Any]) -> str | None:
    """The key that tells which of several records is meant; None where they aren't all records."""
    records = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
    return records[0].__struct_config__.tag_field if len(records) == len(kinds) else None


def _rules(limit: Meta) -> Iterator[Any]:
    if limit.extra and "read" in limit.extra:
        yield BeforeValidator(limit.extra["read"])
    yield Field(
        pattern=limit.pattern, min_length=limit.min_length, max_length=limit.max_length,
        gt=limit.gt, ge=limit.ge, lt=limit.lt, le=limit.le,
    )


def _made(kind: type[R], model: BaseModel) -> R:
    made = kind(**{field.name: getattr(model, field.name) for field in fields(kind)})
    if isinstance(made, _Checked):
        made.check()
    return made
