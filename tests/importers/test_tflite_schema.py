"""The importer's tables of the schema are those of the generated accessors."""

from __future__ import annotations

from typing import Any

import flatbuffers
import pytest
import tflite

from crtexport.importers.tflite import schema, sparse, volumes
from crtexport.importers.tflite.flatbuffer import Field, Reader, Table, root

OWN = [kind for module in (schema, sparse) for kind in vars(module).values()
       if isinstance(kind, type) and kind.__module__ == module.__name__]
TABLES = [*(kind for kind in OWN if issubclass(kind, Table)), volumes.Conv3DOptions]
ENUMERATIONS = [kind for kind in OWN if not issubclass(kind, Table)]
FIELDS = [
    (kind, name, field) for kind in TABLES for name, field in vars(kind).items()
    if isinstance(field, Field)
]
VALUES = {
    "Int8": -3, "Uint8": 200, "Int32": -70_000, "Uint32": (1 << 31) + 5, "Uint64": 1 << 40,
    "Float32": 0.5, "Bool": True,
}


class Recorder:
    """A builder that keeps what it is told to write."""

    def __init__(self) -> None:
        self.kind, self.slot, self.default = "", -1, None

    def __getattr__(self, method: str) -> Any:
        def told(slot: int, _: object, default: Any) -> None:
            self.kind = method.removeprefix("Prepend").removesuffix("Slot")
            self.slot, self.default = slot, default

        return told


def adder(kind: type[Table], name: str) -> Any:
    """The generated function that writes a field."""
    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    return getattr(tflite, f"{kind.__name__}Add{camel}")


def written(content: Any) -> Reader:
    """A file whose root ``content`` makes, given a builder."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(20)
    content(builder)
    builder.Finish(builder.EndObject())
    return Reader(bytes(builder.Output()))


@pytest.mark.parametrize("kind", ENUMERATIONS, ids=lambda kind: kind.__name__)
def test_enumerations(kind: type) -> None:
    known = schema.constant_names(kind)
    assert known
    assert known.items() <= schema.constant_names(getattr(tflite, kind.__name__)).items()


@pytest.mark.parametrize(
    ("kind", "name", "field"), FIELDS, ids=[f"{kind.__name__}.{name}" for kind, name, _ in FIELDS]
)
def test_fields(kind: type[Table], name: str, field: Field[Any]) -> None:
    add, recorder = adder(kind, "data" if name == "place" else name), Recorder()
    add(recorder, 0)
    assert field.number == recorder.slot
    if recorder.kind == "UOffsetTRelative":
        return  # of any vector, string or table
    absent = getattr(root(written(lambda _: None), kind), name)
    assert absent == recorder.default
    value = not absent if recorder.kind == "Bool" else VALUES[recorder.kind]
    found = getattr(root(written(lambda builder: add(builder, value)), kind), name)
    assert (found, type(found)) == (value, type(absent))


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_kinds_of_options(kind: type[Table]) -> None:
    assert getattr(tflite.BuiltinOptions, kind.__name__, 0) == kind.UNION


def test_names_of_what_cannot_be_imported() -> None:
    assert schema.any_name("BuiltinOperator", tflite.BuiltinOperator.REAL) == "REAL"
    assert schema.any_name("BuiltinOperator", 9999) is None
