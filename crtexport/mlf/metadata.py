"""metadata.json: TVM's version 7, and our section under the key ``crtexport``.

The models are strict about what they write and lenient about what they read: other exporters leave
keys out or add some. Older versions (1 to 6) are brought to the form of version 7 while reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from crtexport.errors import CrtExportError
from crtexport.schema import mistake

VERSION = 7
SECTION_FORMAT: Literal[1] = 1
CPU_DEVICE = 1  # kDLCPU

Json = dict[str, Any]


# Names in generated C, and what goes into a Makefile: its comments and its patterns.
_CName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
_Plain = Annotated[str, Meta(pattern=r"^[ -\[\]-~]*\Z")]
_Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*-][A-Za-z0-9_*/-]*(\.[A-Za-z0-9]+)?\Z")]
NonNegativeInt = Annotated[int, Meta(ge=0)]
_Align = Annotated[int, Meta(ge=1, le=1 << 16)]


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    """``_brief`` names fields that aren't written while they have their defaults."""

    _brief: ClassVar[tuple[str, ...]] = ()


class TensorSize(_Model, frozen=True, kw_only=True):
    """Bytes and dtype of an input or output; the format has no place for its shape."""

    size: NonNegativeInt
    dtype: str = ""


class MainEntry(_Model, frozen=True, kw_only=True):
    """What the main function needs on one device (a DLDeviceType)."""

    device: int = CPU_DEVICE
    workspace_size_bytes: NonNegativeInt = 0
    constants_size_bytes: NonNegativeInt = 0
    io_size_bytes: NonNegativeInt = 0
    inputs: dict[str, TensorSize] = {}
    outputs: dict[str, TensorSize] = {}


class OperatorFunction(_Model, frozen=True, kw_only=True):
    """Workspace of one operator function; ours need none beside main's."""

    function_name: str
    workspace: tuple[Json, ...] = ()


class Functions(_Model, frozen=True, kw_only=True):
    main: tuple[MainEntry, ...] = ()
    operator_functions: tuple[OperatorFunction, ...] = ()


class Memory(_Model, frozen=True, kw_only=True):
    functions: Functions = Functions()


class Module(_Model, frozen=True, kw_only=True):
    """One model of a package, with the format's own keys."""

    model_name: str
    export_datetime: str = ""
    memory: Memory = Memory()
    target: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()
    style: str = "full-model"
    external_dependencies: tuple[Json, ...] = ()


class TensorQuantization(_Model, frozen=True, kw_only=True):
    """real = scale * (stored - zero_point), one pair per slice of ``axis`` if there are several."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


class Tensor(_Model, frozen=True, kw_only=True):
    """An input or output in the order of ``run``; ``field`` is its name in C.

    ``offset``: where in pool ``pool`` of the workspace it lies, 0 for the first and then those
    spilled; None if it lies in a buffer of the caller's.
    """

    name: str
    field: _CName
    dtype: str
    shape: tuple[NonNegativeInt, ...]
    bytes: NonNegativeInt
    offset: NonNegativeInt | None = None
    pool: NonNegativeInt = 0
    quantization: TensorQuantization | None = None
    _brief: ClassVar[tuple[str, ...]] = ("pool",)


class Spilled(_Model, frozen=True, kw_only=True):
    """A part of the workspace for another memory of the board."""

    memory: _CName
    bytes: NonNegativeInt


class Workspace(_Model, frozen=True, kw_only=True):
    """``owner``: "module" (static memory of its own), "package" (static memory of all its models)
    or "caller" (handed to ``run``). ``spilled``
    is what comes to ``bytes`` in other memories."""

    bytes: NonNegativeInt
    align: _Align
    owner: Literal["module", "package", "caller"]
    spilled: tuple[Spilled, ...] = ()
    _brief: ClassVar[tuple[str, ...]] = ("spilled",)

    @property
    def by_caller(self) -> bool:
        return self.owner == "caller"


class ImageBuffer(_Model, frozen=True, kw_only=True):
    """What programs of devices are inflated into; its owner is that of the workspace."""

    bytes: NonNegativeInt
    align: _Align


class Variable(_Model, frozen=True, kw_only=True):
    """What a model keeps from run to run, ``offset`` bytes into its state."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: NonNegativeInt


class State(_Model, frozen=True, kw_only=True):
    """Memory that is kept from run to run; zeros stand for the initial values. Owned and aligned
    as the workspace is."""

    bytes: NonNegativeInt = 0
    variables: tuple[Variable, ...] = ()


class Registered(_Model, frozen=True, kw_only=True):
    """A name in the function registry and the symbol behind it."""

    name: str
    symbol: str


class LayerChannels(_Model, frozen=True, kw_only=True):
    """A layer before and after channels were removed that tell the outputs nothing: the channels
    that it reads and computes, multiply-accumulates, bytes of weights.

    Channels that are gone had zero weights only, one value whatever the input, or no reader.
    """

    layer: str
    inputs: tuple[NonNegativeInt, NonNegativeInt]
    outputs: tuple[NonNegativeInt, NonNegativeInt]
    macs: tuple[NonNegativeInt, NonNegativeInt]
    weight_bytes: tuple[NonNegativeInt, NonNegativeInt]
    zero_weights: NonNegativeInt = 0
    one_value: NonNegativeInt = 0
    unread: NonNegativeInt = 0


class Decision(_Model, frozen=True, kw_only=True):
    """What an accelerator did with a layer: one of its functions computes it, or it refused."""

    accelerator: str
    layer: str
    function: str = ""
    reason: str = ""


class Library(_Model, frozen=True, kw_only=True):
    """Code of others that sources of the package are built with: see
    :class:`crtexport.ir.modules.Library`."""

    name: _Plain
    version: _Plain
    url: _Plain
    variable: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*\Z")]
    include: tuple[_Pattern, ...]
    sources: tuple[_Pattern, ...]


class Tuning(_Model, frozen=True, kw_only=True):
    """The file of measurements that decided about kernels, and for how many layers it could."""

    sha256: str
    layers: NonNegativeInt


class DeviceContext(_Model, frozen=True, kw_only=True):
    """A member of ``struct tvmgen_<m>_devices``, and the functions that run with it."""

    field: _CName
    kind: str
    id: int
    program: str
    hooks: Annotated[tuple[_CName, ...], Meta(min_length=1)]
    functions: tuple[str, ...]


class Commands(_Model, frozen=True, kw_only=True):
    """What an Ethos-U runs in one call: the layer, and bytes of commands and constant data in
    flash, of the arena and of a fast memory (the arena, where there is none apart)."""

    layer: str
    commands: NonNegativeInt
    constants: NonNegativeInt
    arena: NonNegativeInt
    fast: NonNegativeInt


class External(_Model, frozen=True, kw_only=True):
    """A function of others that the model calls, and where it comes from."""

    symbol: str
    module: str
    kind: str
    files: tuple[str, ...]
    device: str | None = None
    commands: tuple[Commands, ...] = ()
    _brief: ClassVar[tuple[str, ...]] = ("commands",)


class ModuleSection(_Model, frozen=True, kw_only=True):
    """What crtexport knows about one module beyond the format's keys.

    ``io``: whose the memory of inputs and outputs is, the "caller"'s or part of the "workspace".
    ``channels`` is empty where no channel was removed.
    """

    source: str = ""
    source_sha256: str = ""
    rounding: str = ""
    optimize: Annotated[str, Meta(pattern=r"^(size|balanced|speed)?\Z")] = ""
    llvm_options: tuple[str, ...] = ()
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    io: Literal["caller", "workspace"] = "caller"
    workspace: Workspace
    state: State = State()
    image_buffer: ImageBuffer | None = None
    constants_bytes: NonNegativeInt
    constants_object: str | None = None
    externals: tuple[External, ...] = ()
    devices: tuple[DeviceContext, ...] = ()
    registry: tuple[Registered, ...]
    plan: str | None = None
    channels: tuple[LayerChannels, ...] = ()
    decisions: tuple[Decision, ...] = ()
    libraries: tuple[Library, ...] = ()
    tuning: Tuning | None = None
    _brief: ClassVar[tuple[str, ...]] = ("decisions", "libraries", "tuning", "image_buffer")

    @property
    def caller_buffer(self) -> tuple[int, int]:
        """Bytes and alignment of the buffer for programs that the caller hands in; 0: none."""
        if self.image_buffer is None or not self.workspace.by_caller:
            return 0, 1
        return self.image_buffer.bytes, self.image_buffer.align


class Abi(_Model, frozen=True, kw_only=True):
    """What objects and generated C agree on with the firmware that links them."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    float_abi: str
    abi: str
    pointer_bits: int
    little_endian: bool
    stack_align: int
    reloc: str
    cflags: tuple[str, ...]


class Kernel(_Model, frozen=True, kw_only=True):
    """A kernel by its symbol, and the layers that it computes."""

    symbol: str
    layers: tuple[str, ...] = ()


class Object(_Model, frozen=True, kw_only=True):
    """An object: machine, bytes by section, global symbols (``hidden`` ones serve other objects of
    the package), what it is for and its kernels."""

    machine: str
    bits: int
    sections: dict[str, int]
    defined: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    undefined: tuple[str, ...]
    role: str = ""
    kernels: tuple[Kernel, ...] = ()


class Undefined(_Model, frozen=True, kw_only=True):
    """External symbols: all that the code is allowed to need, and what the objects do need.

    ``used`` is None when the package holds sources, whose compiler decides.
    """

    allowed: tuple[str, ...]
    used: tuple[str, ...] | None = None


class Board(_Model, frozen=True, kw_only=True):
    name: str
    file: str


class Member(_Model, frozen=True, kw_only=True):
    sha256: str
    bytes: NonNegativeInt


class DeviceImage(_Model, frozen=True, kw_only=True):
    """A program of a device: ``symbol`` plus ``offset`` bytes is its image, stored, lz4 or zlib;
    ``crc32c`` is of the program, in hexadecimal digits; ``target`` is its name in a bundle."""

    module: str
    kind: str
    id: int
    program: str
    functions: tuple[str, ...]
    symbol: str
    offset: NonNegativeInt
    compression: str
    stored_size: NonNegativeInt
    original_size: NonNegativeInt
    crc32c: str
    align: int
    target: str


class Section(_Model, frozen=True, kw_only=True):
    """The key ``crtexport``. ``devices`` lists device images; ``members`` every file but this."""

    format: Literal[1] = SECTION_FORMAT
    version: str
    emit: Literal["c", "llvm"]
    system_lib: bool
    board: Board
    abi: Abi
    modules: dict[str, ModuleSection]
    objects: dict[str, Object] = {}
    undefined: Undefined
    devices: tuple[DeviceImage, ...] = ()
    tools: dict[str, str] = {}
    members: dict[str, Member] = {}


class Metadata(_Model, frozen=True, kw_only=True):
    version: int = VERSION
    modules: dict[str, Module]
    crtexport: Section | None = None

    def dump(self) -> bytes:
        """The file's bytes."""
        data = _written(self)
        msgspec.convert(data, Metadata)  # what is written can be read
        return json_bytes(data)


def _written(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, _Model):
        fields = [(field, getattr(value, field.name)) for field in msgspec.structs.fields(value)]
        return {
            field.name: _written(own) for field, own in fields
            if own != field.default or field.name not in value._brief
        }
    if isinstance(value, Mapping):
        return {name: _written(own) for name, own in value.items()}
    if isinstance(value, tuple | list):
        return [_written(own) for own in value]
    return value


def json_bytes(data: Json) -> bytes:
    """JSON text, indented, ASCII, in the order that ``data`` has."""
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode("ascii")


def parse(content: bytes, where: str) -> tuple[Metadata, Json]:
    """Read metadata of any version from 1 to 7; returns it and the JSON object as it stands.

    Raises CrtExportError, located in ``where``, for what isn't metadata of a package.
    """
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CrtExportError(f"this isn't JSON ({error})", location=where) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("version"), int):
        raise CrtExportError(
            "this has no integer under the key \"version\"", location=where,
            hint="a package of the Model Library Format says its version there",
        )
    section = raw.get("crtexport")
    if isinstance(section, dict) and section.get("format") != SECTION_FORMAT:
        raise CrtExportError(
            f"the section \"crtexport\" has format {section.get('format')!r}; "
            f"this program reads {SECTION_FORMAT}",
            location=where, hint="read it with the version of crtexport that wrote it, or a newer",
        )
    data = _version_7(raw)
    try:
        return _metadata(data), raw
    except msgspec.ValidationError as error:
        found = mistake(error, data, _metadata)
        raise CrtExportError(found.problem, location=(where, ".".join(found.path))) from error


def _metadata(data: Json) -> Metadata:
    return msgspec.convert(data, Metadata)


def _version_7(raw: Json) -> Json:
    if "modules" in raw:
        return raw
    module = dict(raw)
    module["executors"] = raw.get("executors", raw.get("runtimes", []))
    target = raw.get("target", [])
    if isinstance(target, dict):
        module["target"] = list(target.values())
    elif isinstance(target, str):
        module["target"] = [target]
    memory = raw.get("memory")
    if not isinstance(memory, dict) or "functions" not in memory:
        module["memory"] = {}  # a list of storage ids (version 1) or one list per operator
    name = str(raw.get("model_name", "default"))
    module["model_name"] = name
    return {"version": raw["version"], "modules": {name: module}}
