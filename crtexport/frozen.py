"""Frozen dataclasses that are there at once.

``dataclasses.dataclass(frozen=True)`` compiles six methods of a class whenever the program starts,
which for all classes together was a quarter of what exporting a small network takes. This one
compiles the constructor, and the others when they are called, or shares them. Type checkers see
the original; ``replace``, ``fields``, ``asdict`` and ``match`` see no difference.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_UNSAID = object()
_Method = Callable[..., Any]
_COMPARISONS = """\
def __eq__(self, other):
 if other.__class__ is self.__class__:
  return ({own}) == ({theirs})
 return NotImplemented
def __hash__(self):
 return hash(({own}))
"""

if not TYPE_CHECKING:

    def dataclass(*, frozen: bool, eq: bool = True) -> Callable[[type], type]:
        """The decorator ``dataclasses.dataclass(frozen=True, eq=eq)``, for fields that the
        constructor takes by position."""
        if not frozen:
            raise TypeError("only frozen dataclasses are made here")

        def make(cls: type) -> type:
            defined = dict(vars(cls))
            dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
            methods = {
                "__init__": _constructor(cls), "__repr__": _repr, "__setattr__": _refuse,
                "__delattr__": _refuse, **(_comparisons(cls) if eq else {}),
            }
            for name, method in methods.items():
                if defined.get(name) is None:  # None: hashing is undone where "==" is defined
                    setattr(cls, name, method)
            return cls

        return make


def _constructor(cls: type) -> _Method:
    """``__init__``; a default is looked up where it's needed, as it may be no literal."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_unsaid": _UNSAID}
    parameters, lines = ["self"], []
    for field in dataclasses.fields(cls):
        name = value = field.name
        if not field.init or field.kw_only:
            raise TypeError(f"{cls.__qualname__}.{name} isn't taken by position")
        if field.default is not dataclasses.MISSING:
            known[f"_of_{name}"] = field.default
            parameters.append(f"{name}=_of_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_of_{name}"] = field.default_factory
            parameters.append(f"{name}=_unsaid")
            value = f"_of_{name}() if {name} is _unsaid else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    return _compiled(cls, text, known)["__init__"]


def _comparisons(cls: type) -> dict[str, _Method]:
    """``==`` of objects of one class, and what goes with it: compiled when one is called, as
    objects of few classes are ever compared."""

    def compiled(name: str) -> _Method:
        names = [field.name for field in dataclasses.fields(cls) if field.compare]
        own, theirs = ("".join(f"{of}.{name}, " for name in names) for of in ("self", "other"))
        methods = _compiled(cls, _COMPARISONS.format(own=own, theirs=theirs), {})
        for method, stub in stubs.items():
            if vars(cls).get(method) is stub:
                setattr(cls, method, methods[method])
        return methods[name]

    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        return compiled("__eq__")(self, other)

    def __hash__(self: object) -> Any:  # noqa: N807
        return compiled("__hash__")(self)

    stubs: dict[str, _Method] = {"__eq__": __eq__, "__hash__": __hash__}
    return stubs


def _compiled(cls: type, text: str, known: dict[str, Any]) -> dict[str, _Method]:
    methods: dict[str, _Method] = {}
    exec(text, known, methods)  # noqa: S102  (names of fields, which Python has checked)
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
    return methods


@reprlib.recursive_repr()
def _repr(value: Any) -> str:
    shown = (
        f"{field.name}={getattr(value, field.name)!r}"
        for field in dataclasses.fields(value) if field.repr
    )
    return f"{value.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_: object, name: str, *value: object) -> None:
    verb = "assign to" if value else "delete"
    raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")
