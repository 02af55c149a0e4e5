"""metadata.json: TVM's version 7, and our section under the key ``crtexport``.

The records are strict when written and lenient when read: other exporters leave keys out or add
some. Older versions (1 to 6) are converted to the form of version 7 while reading.
"""

# Annotations are no text here: msgspec would compile each before it checks what is written.

import functools
import json
from typing import Annotated, Any, ClassVar, Literal

from msgspec import NODEFAULT, Meta, Struct, convert
from msgspec.json import format as indented

from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS
from crtexport.support.schema import InvalidDataError, record

VERSION = 7
SECTION_FORMAT: Literal[1] = 1
CPU_DEVICE = 1  # kDLCPU

Json = dict[str, Any]

_Count = Annotated[int, Meta(ge=0)]
# Names in generated C, and what goes into Makefiles and CMake's: texts, comments and patterns.
_CName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Plain = Annotated[str, Meta(pattern=r"^[A-Za-z0-9 _./+:,@%~?=()-]*$")]
_Versions = Annotated[str, Meta(pattern=r"^[A-Za-z0-9 _.,+<>=!~-]*$")]
_Pattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_*-][A-Za-z0-9_*/-]*(\.[A-Za-z0-9]+)?$")]
_Align = Annotated[int, Meta(ge=1, le=1 << 16)]


class _Record(Struct, frozen=True):
    """The base of the records in metadata.json. ``brief`` are fields that aren't written if they
    have their defaults."""

    brief: ClassVar[tuple[str, ...]] = ()


class TensorSize(_Record, frozen=True):
    """Bytes and dtype of an input or output; the format has no place for its shape."""

    size: _Count
    dtype: str = ""


class MainEntry(_Record, frozen=True):
    """Memory of the main function on one device (a DLDeviceType)."""

    device: int = CPU_DEVICE
    workspace_size_bytes: _Count = 0
    constants_size_bytes: _Count = 0
    io_size_bytes: _Count = 0
    inputs: dict[str, TensorSize] = {}
    outputs: dict[str, TensorSize] = {}


class OperatorFunction(_Record, frozen=True):
    """The workspace of one operator function. Those of crtexport need none beside main's."""

    function_name: str
    workspace: tuple[Json, ...] = ()


class Functions(_Record, frozen=True):
    main: tuple[MainEntry, ...] = ()
    operator_functions: tuple[OperatorFunction, ...] = ()


class ModuleMemory(_Record, frozen=True):
    functions: Functions = Functions()


class ModuleEntry(_Record, frozen=True):
    """One model of a package, with the format's own keys."""

    model_name: str
    export_datetime: str = ""
    memory: ModuleMemory = ModuleMemory()
    target: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()
    style: str = "full-model"
    external_dependencies: tuple[Json, ...] = ()


class TensorQuantization(_Record, frozen=True):
    """real = scale * (stored - zero_point), one pair per slice of ``axis`` if there are several."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def check(self) -> None:
        if not self.scale or len(self.scale) != len(self.zero_point):
            raise ValueError(
                f"{len(self.scale)} scales and {len(self.zero_point)} zero points: there must be"
                " as many of both, and at least one"
            )


class TensorEntry(_Record, frozen=True):
    """An input or output in the order of ``run``; ``field`` is its name in C.

    ``offset``: its byte in pool ``pool`` of the workspace, 0 for the first and then those spilled;
    None if it lies in a buffer of the caller's.
    """

    name: str
    field: _CName
    dtype: str
    shape: tuple[_Count, ...]
    bytes: _Count
    offset: _Count | None = None
    pool: _Count = 0
    quantization: TensorQuantization | None = None
    brief: ClassVar[tuple[str, ...]] = ("pool",)


class Spilled(_Record, frozen=True):
    """A part of the workspace for another memory of the board."""

    memory: _CName
    bytes: _Count


class Workspace(_Record, frozen=True):
    """``owner``: "module" (static memory of its own), "package" (static memory of all its models)
    or "caller" (passed to ``run``). ``spilled``: further memories, in addition to ``bytes``."""

    bytes: _Count
    align: _Align
    owner: Literal["module", "package", "caller"]
    spilled: tuple[Spilled, ...] = ()
    brief: ClassVar[tuple[str, ...]] = ("spilled",)

    @property
    def together(self) -> int:
        """Returns the bytes in all memories."""
        return self.bytes + sum(part.bytes for part in self.spilled)

    @property
    def by_caller(self) -> bool:
        return self.owner == "caller"


class ImageBuffer(_Record, frozen=True):
    """The buffer that device programs are inflated into; its owner is that of the workspace."""

    bytes: _Count
    align: _Align


class VariableEntry(_Record, frozen=True):
    """A tensor that a model keeps from run to run, ``offset`` bytes into its state."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: _Count


class StateEntry(_Record, frozen=True):
    """Memory that is kept from run to run; all zeros mean the initial values. Its owner and its
    alignment are those of the workspace."""

    bytes: _Count = 0
    variables: tuple[VariableEntry, ...] = ()


class RegisteredEntry(_Record, frozen=True):
    """A name in the function registry and the symbol behind it."""

    name: str
    symbol: str


class ChannelsEntry(_Record, frozen=True):
    """A layer (before, after) the removal of channels that don't influence the outputs: the
    channels that it reads and computes, multiply-accumulates, bytes of weights.

    ``zero_weights``, ``one_value`` and ``unread`` count removed channels by reason: all weights are
    zero, the value doesn't depend on the input, or no layer reads it.
    """

    layer: str
    inputs: tuple[_Count, _Count]
    outputs: tuple[_Count, _Count]
    macs: tuple[_Count, _Count]
    weight_bytes: tuple[_Count, _Count]
    zero_weights: _Count = 0
    one_value: _Count = 0
    unread: _Count = 0


class DecisionEntry(_Record, frozen=True):
    """The decision of an accelerator about a layer: one of its functions computes it, or it
    refused."""

    accelerator: str
    layer: str
    function: str = ""
    reason: str = ""


class LibraryEntry(_Record, frozen=True):
    """A third-party library that sources of the package are built with: see
    :class:`crtexport.ir.modules.Library`."""

    name: _Plain
    version: _Versions
    url: _Plain
    variable: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$")]
    include: tuple[_Pattern, ...]
    sources: tuple[_Pattern, ...]


class Tuning(_Record, frozen=True):
    """The file of measurements that selected kernels, and the number of layers that it covered."""

    sha256: str
    layers: _Count


class DeviceContext(_Record, frozen=True):
    """A member of ``struct tvmgen_<m>_devices``, and the functions that run with it."""

    field: _CName
    kind: str
    id: int
    program: str
    hooks: Annotated[tuple[_CName, ...], Meta(min_length=1)]
    functions: tuple[str, ...]


class Commands(_Record, frozen=True):
    """One call of an Ethos-U: the layer, and bytes of commands and constant data in flash, of the
    arena and of a fast memory (the arena, where there is none apart)."""

    layer: str
    commands: _Count
    constants: _Count
    arena: _Count
    fast: _Count


class ExternalEntry(_Record, frozen=True):
    """An external function that the model calls, and the file that defines it."""

    symbol: str
    module: str
    kind: str
    files: tuple[str, ...]
    device: str | None = None
    commands: tuple[Commands, ...] = ()
    brief: ClassVar[tuple[str, ...]] = ("commands",)


class FeedEntry(_Record, frozen=True):
    """The input whose rows are given one after the other, ``row_bytes`` bytes each. There is a
    result after ``rows`` rows, and a further one after each ``hop`` rows more (0: no further
    ones)."""

    input: str
    rows: Annotated[int, Meta(gt=0)]
    row_bytes: Annotated[int, Meta(gt=0)]
    hop: _Count = 0
    brief: ClassVar[tuple[str, ...]] = ("hop",)


class ModuleSection(_Record, frozen=True, kw_only=True):
    """crtexport's facts about one module beyond the format's keys.

    ``io``: the memory of inputs and outputs, the "caller"'s or part of the "workspace". ``feed``:
    how an input is given row by row, None where all are given as a whole.
    ``channels`` is empty where no channel was removed.
    """

    source: str = ""
    source_sha256: str = ""
    numerics: str = ""
    optimize: Annotated[str, Meta(pattern=rf"^({'|'.join(LEVELS)})?$")] = ""
    llvm_options: tuple[str, ...] = ()
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    io: Literal["caller", "workspace"] = "caller"
    feed: FeedEntry | None = None
    workspace: Workspace
    state: StateEntry = StateEntry()
    image_buffer: ImageBuffer | None = None
    constants_bytes: _Count
    constants_object: str | None = None
    externals: tuple[ExternalEntry, ...] = ()
    devices: tuple[DeviceContext, ...] = ()
    registry: tuple[RegisteredEntry, ...]
    plan: str | None = None
    network: str | None = None
    channels: tuple[ChannelsEntry, ...] = ()
    decisions: tuple[DecisionEntry, ...] = ()
    libraries: tuple[LibraryEntry, ...] = ()
    tuning: Tuning | None = None
    brief: ClassVar[tuple[str, ...]] = (
        "decisions", "libraries", "tuning", "image_buffer", "feed",
    )

    @property
    def caller_buffer(self) -> tuple[int, int]:
        """Returns bytes and alignment of the buffer for programs that the caller provides; 0: none.
        """
        if self.image_buffer is None or not self.workspace.by_caller:
            return 0, 1
        return self.image_buffer.bytes, self.image_buffer.align


class Abi(_Record, frozen=True):
    """The ABI that objects and generated C share with the firmware that links them."""

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


class KernelEntry(_Record, frozen=True):
    """A kernel by its symbol, and the layers that it computes."""

    symbol: str
    layers: tuple[str, ...] = ()


class Object(_Record, frozen=True, kw_only=True):
    """An object: machine, bytes by section, global symbols (``hidden`` ones serve other objects of
    the package), its purpose and its kernels."""

    machine: str
    bits: int
    sections: dict[str, int]
    defined: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    undefined: tuple[str, ...]
    role: str = ""
    kernels: tuple[KernelEntry, ...] = ()


class Undefined(_Record, frozen=True):
    """External symbols: those that the code may use, and those that the objects do use.

    ``used`` is None when the package holds sources, whose compiler decides.
    """

    allowed: tuple[str, ...]
    used: tuple[str, ...] | None = None


class BoardEntry(_Record, frozen=True):
    name: str
    file: str


class Member(_Record, frozen=True):
    sha256: str
    bytes: _Count


class ImageEntry(_Record, frozen=True):
    """A device program: ``symbol`` plus ``offset`` bytes is its image, stored, lz4 or zlib;
    ``crc32c`` is of the program, in hexadecimal digits; ``target`` is its name in a bundle."""

    module: str
    kind: str
    id: int
    program: str
    functions: tuple[str, ...]
    symbol: str
    offset: _Count
    compression: str
    stored_size: _Count
    original_size: _Count
    crc32c: str
    align: int
    target: str


class CrtexportSection(_Record, frozen=True, kw_only=True):
    """The key ``crtexport``. ``devices`` lists device images; ``members`` every file but the
    metadata."""

    format: Literal[1] = SECTION_FORMAT
    version: str
    emit: Literal["c", "llvm"]
    system_lib: bool
    board: BoardEntry
    abi: Abi
    modules: dict[str, ModuleSection]
    objects: dict[str, Object] = {}
    undefined: Undefined
    devices: tuple[ImageEntry, ...] = ()
    tools: dict[str, str] = {}
    members: dict[str, Member] = {}


class Metadata(_Record, frozen=True, kw_only=True):
    version: int = VERSION
    modules: dict[str, ModuleEntry]
    crtexport: CrtexportSection | None = None

    def dump(self) -> bytes:
        """Returns the file's bytes."""
        data: Json = _data(self)
        convert(data, Metadata)  # what is written is what can be read
        return json_bytes(data)


def _data(value: Any) -> Any:
    """Returns ``value`` as JSON data."""
    if isinstance(value, _Record):
        return {
            name: _data(held)
            for name, default in _defaults(type(value))
            if (held := getattr(value, name)) != default or name not in value.brief
        }
    if isinstance(value, dict):
        return {key: _data(held) for key, held in value.items()}
    return [_data(held) for held in value] if isinstance(value, tuple) else value


@functools.cache
def _defaults(kind: type[_Record]) -> tuple[tuple[str, object], ...]:
    """Returns (name, default) of the fields in ``brief``."""
    names, defaults = kind.__struct_fields__, kind.__struct_defaults__
    required = (NODEFAULT,) * (len(names) - len(defaults))
    return tuple(zip(names, (*required, *defaults), strict=True))


def json_bytes(data: Json) -> bytes:
    """Returns JSON text, indented, ASCII, in the order of ``data``."""
    # With indent=, the json module uses its slow encoder, which is written in Python.
    text = indented(json.dumps(data, allow_nan=False), indent=2)
    return f"{text}\n".encode("ascii")


def short_json_bytes(data: Json) -> bytes:
    """Returns JSON text without spaces, ASCII, in the order of ``data``."""
    return f"{json.dumps(data, allow_nan=False, separators=(',', ':'))}\n".encode("ascii")


def parse(content: bytes, where: str) -> tuple[Metadata, Json]:
    """Returns metadata of any version from 1 to 7, and its unchanged JSON object.

    Raises CrtExportError, located in ``where``, for anything but metadata of a package.
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
    try:
        return record(Metadata, _version_7(raw), extra="ignore"), raw
    except InvalidDataError as error:
        problem = error.problems[0]
        key = ".".join(map(str, problem.path))
        raise CrtExportError(problem.text, location=(where, key), hint=problem.hint) from error


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
