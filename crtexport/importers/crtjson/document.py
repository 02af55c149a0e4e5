"""What model.json looks like: pydantic models, from which its JSON Schema is made too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
)

from crtexport.importers.crtjson.attributes import OPERATORS, STRICT, attributes_model
from crtexport.ir.ops import Control
from crtexport.ir.types import DType

FORMAT = "crtexport-model"
VERSION = 1
SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

_INLINE_SCHEMA = {
    "title": "Inline",
    "description": "All elements in C order, flat or nested like the shape.",
    "anyOf": [{"type": "number"}, {"type": "boolean"}, {"type": "array"}],
}


# Bounded, so that no number of the file is too long to be printed in a message.
Size = Annotated[int, Field(ge=0, lt=2**63)]
Stored = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class QuantizationModel(BaseModel):
    """real = scale * (stored - zero_point). A list of scales goes along ``axis``."""

    model_config = STRICT
    scale: float | list[float]
    zero_point: Stored | list[Stored] = 0
    axis: Size | None = None


class FileData(BaseModel):
    """A constant in a file beside the model: a tensor of a .safetensors file, or raw bytes.

    Raw bytes are little-endian in C order, ``nbytes`` (default: as many as the tensor has) from
    ``offset`` (default 0).
    """

    model_config = STRICT
    file: str
    tensor: str | None = None
    offset: Size | None = None
    nbytes: Size | None = None


# Tags show up in pydantic's error locations, so they must not look like keys.
DATA_TAGS = ("a file", "inline")


def _kind_of_data(data: object) -> str:
    return DATA_TAGS[0] if isinstance(data, dict | FileData) else DATA_TAGS[1]


Data = Annotated[
    Annotated[FileData, Tag(DATA_TAGS[0])]
    | Annotated[Any, WithJsonSchema(_INLINE_SCHEMA), Tag(DATA_TAGS[1])],
    Discriminator(_kind_of_data),
]


class TensorModel(BaseModel):
    """A tensor; with ``data`` it is a constant. ``name`` is unique and any text.

    A ``variable`` keeps its value between runs; ``data`` is what it holds before the first one
    (default: zero bytes).
    ``label`` is what the network calls the tensor, where that isn't ``name``.
    """

    model_config = STRICT
    name: str
    dtype: DType
    shape: list[Size]
    quantization: QuantizationModel | None = None
    data: Data | None = None
    variable: bool = False
    label: str | None = None


class NodeModel(BaseModel):
    """One operator. ``inputs`` and ``outputs`` name tensors; null is an optional input left out.

    ``name`` and ``origin`` only serve messages.
    """

    model_config = STRICT
    op: str
    inputs: list[str | None]
    outputs: list[str]
    attributes: Any
    name: str = ""
    origin: str | None = None


def _node_model(name: str, kind: type) -> type[NodeModel]:
    attributes = attributes_model(kind)
    literal: Any = Literal[name]
    optional = not any(field.is_required() for field in attributes.model_fields.values())
    fields: dict[str, Any] = {
        "op": (literal, ...),
        "attributes": (attributes, attributes() if optional else ...),
    }
    if issubclass(kind, Control):
        fields["graphs"] = (list["GraphModel"], ...)
    return create_model(
        f"{name}Node", __base__=NodeModel, __doc__=kind.__doc__, __module__=__name__, **fields
    )


NODE_MODELS = {name: _node_model(name, kind) for name, kind in OPERATORS.items()}

if TYPE_CHECKING:
    AnyNode = NodeModel
else:
    AnyNode = Annotated[Union[tuple(NODE_MODELS.values())], Field(discriminator="op")]  # noqa: UP007


class GraphModel(BaseModel):
    """``nodes`` in a valid order of execution; tensors of its own, referred to by name."""

    model_config = STRICT
    name: str | None = None
    inputs: list[str]
    outputs: list[str]
    tensors: list[TensorModel]
    nodes: list[AnyNode]


for _model in NODE_MODELS.values():
    _model.model_rebuild()


def graphs_of(node: NodeModel) -> list[GraphModel]:
    """The graphs that a node holds."""
    return getattr(node, "graphs", [])


class DeviceModel(BaseModel):
    """A device that runs functions: number ``id`` of a ``kind``, with a ``program`` of its own."""

    model_config = STRICT
    kind: str
    id: Size = 0
    program: str = ""


class FunctionModel(BaseModel):
    """A C function ``int32_t name(inputs, outputs[, const_vars][, context])`` that returns 0 or a
    code.

    ``const_vars`` name constant tensors; it gets the address of each. With the ``signature`` packed
    it is a ``TVMBackendPackedCFunc``, which is given the same as DLTensors.
    """

    model_config = STRICT
    name: str
    device: DeviceModel | None = None
    const_vars: list[str] = []
    signature: Literal["c", "packed"] = "c"


class EntryModel(BaseModel):
    """A function of a device's program, which calls it ``entry`` (default: ``name``)."""

    model_config = STRICT
    name: str
    entry: str = ""


class ProgramModel(BaseModel):
    """A file whose bytes a device runs, at an address that is a multiple of ``align``; stored as it
    is or compressed, and its functions."""

    model_config = STRICT
    file: str
    device: DeviceModel
    compression: Literal["none", "lz4", "zlib", "smallest"] = "none"
    align: Annotated[int, Field(ge=1, le=4096)] = 16
    functions: list[EntryModel] = []


class ModuleModel(BaseModel):
    """What something else compiled, or C compilers will, and functions that nodes of the operator
    External call: ``files`` beside the model with ``functions`` in them or, for the kind
    device-image, ``programs`` of devices. The kind ethos-u has the driver's function alone, which
    nodes of the operator EthosU call."""

    model_config = STRICT
    name: str
    kind: Literal["c-source", "object", "device-image", "ethos-u"]
    files: list[str] = []
    functions: list[FunctionModel] = []
    programs: list[ProgramModel] = []


class Document(GraphModel):
    """A network: ``nodes`` in a valid order of execution, tensors referred to by name."""

    schema_: str | None = Field(default=None, alias="$schema", description="For editors; ignored.")
    format: Literal["crtexport-model"]
    version: Literal[1]
    name: str | None = Field(default=None, description="Of the network; default: the file's.")
    modules: list[ModuleModel] = []


def schema() -> dict[str, Any]:
    """The JSON Schema of model.json."""
    return {"$schema": SCHEMA_ID, **Document.model_json_schema(by_alias=True)}
