"""The schema of model.json: records that msgspec decodes, and its JSON Schema."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta, Struct, defstruct, field, json
from msgspec.structs import fields

from crtexport.importers.crtjson.attributes import OPERATORS, attributes_model
from crtexport.ir.ops import Control, Op
from crtexport.ir.types import DType

FORMAT = "crtexport-model"
VERSION = 1
SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

# Bounded, so that no number of the file is too long to be printed in a message.
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Stored = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    """An object of model.json; unknown keys are errors."""


class QuantizationModel(Keys, frozen=True, kw_only=True):
    """real = scale * (stored - zero_point). A list of scales goes along ``axis``."""

    scale: float | list[float]
    zero_point: Stored | list[Stored] = 0
    axis: Size | None = None


class FileData(Keys, frozen=True, kw_only=True):
    """A constant in a file beside the model: a tensor of a .safetensors file, or raw bytes.

    Raw bytes are little-endian in C order, ``nbytes`` (default: as many as the tensor has) from
    ``offset`` (default 0).
    """

    file: str
    tensor: str | None = None
    offset: Size | None = None
    nbytes: Size | None = None


Inline = Annotated[
    list[Any] | bool | int | float,
    Meta(description="All elements in C order, flat or nested like the shape."),
]


class TensorModel(Keys, frozen=True, kw_only=True):
    """A tensor; with ``data`` it is a constant. ``name`` is unique and any text.

    A ``variable`` keeps its value between runs; ``data`` is its initial value (default: zero
    bytes). ``label`` is the network's name of the tensor, where that isn't ``name``.
    """

    name: str
    dtype: DType
    shape: list[Size]
    quantization: QuantizationModel | None = None
    data: FileData | Inline | None = None
    variable: bool = False
    label: str | None = None


class NodeModel(Keys, frozen=True, kw_only=True):
    """One operator. ``inputs`` and ``outputs`` name tensors; null is an optional input left out.

    ``name`` and ``origin`` only serve messages.
    """

    kind: ClassVar[type[Op]]
    inputs: list[str | None]
    outputs: list[str]
    name: str = ""
    origin: str | None = None
    if TYPE_CHECKING:
        attributes: Struct


class GraphsModel(NodeModel, frozen=True, kw_only=True):
    """An operator that runs graphs of its own."""

    graphs: list[GraphModel]


def _node_model(name: str, kind: type[Op]) -> type[NodeModel]:
    attributes = attributes_model(kind)
    required = any(key.required for key in fields(attributes))
    key = ("attributes", attributes)
    model = defstruct(
        f"{name}Node", [key if required else (*key, attributes())],
        bases=(GraphsModel if issubclass(kind, Control) else NodeModel,),
        namespace={"__doc__": kind.__doc__, "kind": kind}, module=__name__, tag_field="op",
        tag=name, frozen=True, kw_only=True,
    )
    return cast(type[NodeModel], model)


NODE_MODELS = {name: _node_model(name, kind) for name, kind in OPERATORS.items()}

if TYPE_CHECKING:
    AnyNode = NodeModel
else:
    AnyNode = reduce(or_, NODE_MODELS.values())


class GraphModel(Keys, frozen=True, kw_only=True):
    """``nodes`` in a valid order of execution; tensors of its own, referred to by name."""

    name: str | None = None
    inputs: list[str]
    outputs: list[str]
    tensors: list[TensorModel]
    nodes: list[AnyNode]


class DeviceModel(Keys, frozen=True, kw_only=True):
    """A device that runs functions: number ``id`` of a ``kind``, with a ``program`` of its own."""

    kind: str
    id: Size = 0
    program: str = ""


class FunctionModel(Keys, frozen=True, kw_only=True):
    """A C function ``int32_t name(inputs, outputs[, const_vars][, context])`` that returns 0 or a
    code.

    ``const_vars`` name constant tensors; it gets the address of each. With the ``signature`` packed
    it is a ``TVMBackendPackedCFunc``, whose arguments are DLTensors.
    """

    name: str
    device: DeviceModel | None = None
    const_vars: list[str] = []
    signature: Literal["c", "packed"] = "c"


class EntryModel(Keys, frozen=True, kw_only=True):
    """A function of a device's program, which calls it ``entry`` (default: ``name``)."""

    name: str
    entry: str = ""


class ProgramModel(Keys, frozen=True, kw_only=True):
    """A file with a device's program, loaded at a multiple of ``align`` bytes, stored as it is or
    compressed, and its functions."""

    file: str
    device: DeviceModel
    compression: Literal["none", "lz4", "zlib", "smallest"] = "none"
    align: Annotated[int, Meta(ge=1, le=4096)] = 16
    functions: list[EntryModel] = []


class ModuleModel(Keys, frozen=True, kw_only=True):
    """An external module, compiled by another tool: ``files`` beside the model with ``functions``
    in them or, for the kind device-image, ``programs`` for devices; nodes of the operator External
    call the functions. The kind ethos-u has the driver's function alone, which nodes of the
    operator EthosU call."""

    name: str
    kind: Literal["c-source", "object", "device-image", "ethos-u"]
    files: list[str] = []
    functions: list[FunctionModel] = []
    programs: list[ProgramModel] = []


class Document(GraphModel, frozen=True, kw_only=True):
    """A network: ``nodes`` in a valid order of execution, tensors referred to by name."""

    schema_: Annotated[str | None, Meta(description="For editors; ignored.")] = field(
        default=None, name="$schema"
    )
    format: Literal["crtexport-model"]
    version: Literal[1]
    name: Annotated[str | None, Meta(description="Of the network; default: the file's.")] = None
    modules: list[ModuleModel] = []


def schema() -> dict[str, Any]:
    """Returns the JSON Schema of model.json."""
    made = json.decode(json.encode(json.schema(Document)))  # defaults, too, become JSON data
    return {"$schema": SCHEMA_ID, **made["$defs"].pop("Document"), "$defs": made["$defs"]}
