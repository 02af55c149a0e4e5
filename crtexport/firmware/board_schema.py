"""Boards: processor, memories, toolchain and runner, as records.

A board is one YAML file (``boards/README.md`` explains every key), resolved into a frozen
:class:`Board` that knows nothing of files: ``to_data()`` is embedded in packages, so that these can
be built and run without the YAML. :func:`crtexport.firmware.board_rules.board_from_data` checks it.
"""

# Annotations are no text here: msgspec would compile each before it reads a board.

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, field, json

from crtexport.firmware.architectures import ARCHITECTURES, has_llvm
from crtexport.firmware.sizes import parse_size
from crtexport.support.levels import Level
from crtexport.support.schema import ContradictionError
from crtexport.support.short import line
from crtexport.support.target import Flash, Target


def _address(value: object) -> object:
    if isinstance(value, str):
        try:
            return int(value, 0)
        except ValueError:
            raise ValueError(f"{value!r} is no address; write it as in 0x20000000") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("an address is a whole number, as in 0x20000000")
    return value


def _one_line(value: object) -> object:
    """Returns a text without the line end that YAML adds to folded text. Raises ValueError for
    control characters, which would reach terminals."""
    if not isinstance(value, str):
        return value
    line = " ".join(value.split())
    if not line.isprintable():
        raise ValueError("the text has characters that can't be printed")
    return line


def _hexadecimal(address: int) -> str:
    return f"0x{address:08x}"


Size = Annotated[int, Meta(gt=0, extra={"read": parse_size})]
CacheSize = Annotated[int, Meta(ge=0, le=1 << 20, extra={"read": parse_size})]
Address = Annotated[int, Meta(ge=0, extra={"read": _address})]
Identifier = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Text = Annotated[str, Meta(min_length=1, extra={"read": _one_line})]
# Words are written into Makefiles and passed to shells, also those from other people's packages,
# so no character is allowed that is special there. Paths may have letters of any language.
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9 _./+=:,@%~^()\[\]\u00a1-\u1fff\u2c00-\ud7ff-]+$")]
Command = Annotated[tuple[Word, ...], Meta(min_length=1)]
DebianPackages = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9+. -]*$")]
LlvmOption = Annotated[str, Meta(pattern=r"^-[A-Za-z0-9_./+=:,-]+$")]
ZephyrName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]+([/@. -][A-Za-z0-9_]+)*$")]


class Cpu(Struct, frozen=True, kw_only=True):
    """The processor that code is generated for; see :class:`crtexport.support.target.Target`.

    Processors for which LLVM generates no code, such as those of the architecture ``other``, have
    no triple. Only they may have 16-bit pointers (with a 16-bit ``int``), and stacks that callers
    align to less than 4 bytes.
    """

    triple: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]*$")] = ""
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.+-]+$")]
    features: tuple[Annotated[str, Meta(pattern=r"^[+-][a-z0-9.-]+$")], ...] = ()
    float_abi: Literal["", "soft", "hard"] = ""
    abi: Literal["", "ilp32", "ilp32f", "ilp32d", "ilp32e", "lp64", "lp64f", "lp64d", "lp64e"] = ""
    pointer_bits: Literal[16, 32, 64] = 32
    endian: Literal["little", "big"] = "little"
    stack_align: Literal[1, 2, 4, 8, 16] = 8
    reloc: Literal["static", "pic"] = "static"
    cflags: tuple[Word, ...] = ()


class Memory(Struct, frozen=True):
    """``size`` bytes from address ``origin`` on."""

    origin: Address
    size: Size


class SectionPlacement(Struct, frozen=True):
    """The memory of each kind of content; initial values of ``.data`` are in ``constants``.

    ``spill``: memories for parts of the workspace that don't fit its own, fastest first.
    """

    vectors: Identifier = "flash"
    code: Identifier = "flash"
    constants: Identifier = "flash"
    data: Identifier = "ram"
    workspace: Identifier = "ram"
    io: Identifier = "ram"
    stack: Identifier = "ram"
    spill: tuple[Identifier, ...] = ()

    @property
    def workspaces(self) -> tuple[str, ...]:
        """Returns the memories that the workspace may use, fastest first."""
        return (self.workspace, *self.spill)


class Toolchain(Struct, frozen=True):
    """``compiler`` is the command without flags; ``package`` is the Debian package that has it, or
    ``url`` its download page."""

    kind: Literal["gcc", "clang"]
    compiler: Command
    package: DebianPackages | None = None
    url: Annotated[str, Meta(pattern=r"^https://[A-Za-z0-9/._~%-]+$")] | None = None
    cflags: tuple[Word, ...] = ()
    ldflags: tuple[Word, ...] = ()
    libraries: tuple[Word, ...] = ()


class QemuRunner(Struct, frozen=True, tag_field="kind", tag="qemu"):
    """``command`` starts the machine. Options for the kernel image, for counting instructions and
    for QEMU's clock are added to it."""

    kind: ClassVar[Literal["qemu"]] = "qemu"
    command: Command
    package: DebianPackages


class NativeRunner(Struct, frozen=True, tag_field="kind", tag="native"):
    """The program runs on this computer."""

    kind: ClassVar[Literal["native"]] = "native"


class NoRunner(Struct, frozen=True, tag_field="kind", tag="none"):
    """No program here can run the board's firmware; ``reason`` says why."""

    kind: ClassVar[Literal["none"]] = "none"
    reason: Text


Runner = QemuRunner | NativeRunner | NoRunner


class Console(Struct, frozen=True):
    """The console that the firmware of ``crtexport build`` and ``run`` prints to; ``address`` is
    the I/O port of a ``uart16550``."""

    kind: Literal["semihosting", "uart16550", "stdio", "none"]
    address: Address | None = None


class Counter(Struct, frozen=True):
    """The instruction counter.

    ``tsc`` and ``minstret`` are exact in QEMU, which runs one instruction per nanosecond.
    ``systick`` ticks ``hz`` times per second, so that it only gives estimates; exact counts come
    from QEMU's plugin. ``none``: the board has no counter.
    """

    kind: Literal["tsc", "minstret", "systick", "none"]
    hz: Annotated[int, Meta(gt=0)] | None = None

    def check(self) -> None:
        """Raises ContradictionError for a clock that is missing."""
        if self.kind == "systick" and self.hz is None:
            raise ContradictionError((), "a systick counter needs hz, the clock that it counts")


class Zephyr(Struct, frozen=True):
    """Names of the board in Zephyr: ``board`` since 3.7 (``mps2/an385``), ``legacy`` before
    (``mps2_an385``)."""

    board: ZephyrName
    legacy: ZephyrName | None = None


class Npu(Struct, frozen=True):
    """An Arm Ethos-U beside the processor.

    ``system_config`` and ``memory_mode`` are names in Vela's own configuration file, Arm/vela.ini;
    empty: Vela's choice. ``memories``: those that it reaches under the processor's addresses;
    none: all of them.
    """

    accelerator: Annotated[str, Meta(pattern=r"^ethos-u(55|65|85)-[0-9]+$")]
    system_config: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]*$")] = ""
    memory_mode: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]*$")] = ""
    memories: tuple[Identifier, ...] = ()


class PlatformIO(Struct, frozen=True):
    """Names of the board in PlatformIO: the keys of an environment in ``platformio.ini``."""

    platform: Word
    board: Word
    framework: Literal["arduino", "espidf"]


class Flashing(Struct, frozen=True, kw_only=True):
    """The tools that write programs to the board's flash, for files and hints of ``crtexport
    build``.

    ``openocd`` are OpenOCD's configuration files, ``arduino`` the name that arduino-cli knows the
    board by (FQBN), ``esp_idf`` a target of ``idf.py``. ``needs`` says what else the board needs to
    start a program.
    """

    openocd: tuple[Word, ...] = ()
    arduino: Word | None = None
    platformio: PlatformIO | None = None
    esp_idf: Identifier | None = None
    needs: Text | None = None


class FlashReading(Struct, frozen=True, kw_only=True):
    """The timing of reads from flash: ``wait_states`` are the additional cycles of a read that no
    cache holds. Caches have ``code_cache`` and ``data_cache`` bytes (0: there is none), in lines of
    ``line`` bytes."""

    wait_states: Annotated[int, Meta(ge=0, le=1000)]
    code_cache: CacheSize = 0
    data_cache: CacheSize = 0
    line: Annotated[int, Meta(ge=4, le=256)] = 16

    def check(self) -> None:
        """Raises ContradictionError for lines that caches can't consist of."""
        if self.line & (self.line - 1):
            raise ContradictionError(("line",), "a line has a power of two of bytes")
        for key, size in (("code_cache", self.code_cache), ("data_cache", self.data_cache)):
            if size % self.line:
                raise ContradictionError((key,), f"this is no multiple of {self.line}, its lines")


class Board(Struct, frozen=True, kw_only=True):
    """A resolved board: everything that it extends is merged, and defaults are filled in."""

    name: Identifier
    description: Text
    architecture: Identifier
    cpu: Cpu
    memory: dict[Identifier, Memory] = {}
    placement: SectionPlacement = SectionPlacement()
    stack_size: Size = 8192
    toolchain: Toolchain
    runner: Runner
    console: Console = Console("none")
    counter: Counter = Counter("none")
    backend: Literal["llvm", "c"] = "llvm"
    optimize: Level = "balanced"
    large_data_threshold: Size | None = None
    llvm_options: tuple[LlvmOption, ...] = ()
    accelerators: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]+$")], ...] = ()
    npu: Npu | None = None
    zephyr: Zephyr | None = None
    flashing: Flashing | None = None
    flash_reading: FlashReading | None = field(default=None, name="flash")

    def __repr__(self) -> str:
        return line("Board", f"{self.name}:", self.description)

    @property
    def hosted(self) -> bool:
        """Returns True if programs run under an operating system, which allocates the memory."""
        rules = ARCHITECTURES.get(self.architecture)
        return rules is not None and rules.hosted

    @property
    def c_only(self) -> bool:
        """Returns True if LLVM doesn't have the processor: exports are C sources."""
        return not has_llvm(self.architecture, self.cpu.triple)

    @property
    def reaches_host(self) -> bool:
        """Returns True if programs of the board can reach files and programs of this computer:
        those that run without an emulator, or use semihosting, which has calls for both."""
        return self.hosted or self.console.kind == "semihosting"

    @property
    def target(self) -> Target:
        """Returns the target for backends."""
        cpu = self.cpu
        return Target(
            triple=cpu.triple,
            cpu=cpu.name,
            features=cpu.features,
            float_abi=cpu.float_abi,
            abi=cpu.abi,
            pointer_bits=cpu.pointer_bits,
            little_endian=cpu.endian == "little",
            stack_align=cpu.stack_align,
            reloc=cpu.reloc,
            cflags=cpu.cflags,
            flash=self.flash_timing,
        )

    @property
    def flash_timing(self) -> Flash | None:
        """Returns how long reads from flash take, None where nothing is known."""
        reading = self.flash_reading
        return None if reading is None else Flash(
            wait_states=reading.wait_states, code_cache=reading.code_cache,
            data_cache=reading.data_cache, line=reading.line,
        )

    @property
    def build_systems(self) -> tuple[str, ...]:
        """Returns the build systems that know the board, as formats of ``crtexport build``."""
        found = self.flashing or Flashing()
        names = {"esp-idf": found.esp_idf, "arduino": found.arduino,
                 "platformio": found.platformio, "zephyr": self.zephyr}
        return tuple(name for name, known in names.items() if known is not None)

    @property
    def flash(self) -> tuple[str, ...]:
        """Returns the names of the memories with code and constants, sorted."""
        place = self.placement
        return () if self.hosted else tuple(sorted({place.vectors, place.code, place.constants}))

    @property
    def ram(self) -> tuple[str, ...]:
        """Returns the names of the memories with variable data, sorted."""
        place = self.placement
        if self.hosted:
            return ()
        return tuple(sorted({place.data, *place.workspaces, place.io, place.stack}))

    def to_data(self) -> dict[str, Any]:
        """Returns the board as JSON data, from which ``board_from_data`` makes an equal one."""
        data: dict[str, Any] = json.decode(json.encode(self))
        for name, memory in self.memory.items():
            data["memory"][name]["origin"] = _hexadecimal(memory.origin)
        if self.console.address is not None:
            data["console"]["address"] = _hexadecimal(self.console.address)
        if not self.placement.spill:
            del data["placement"]["spill"]  # not written when empty: packages keep their bytes
        if not self.accelerators:
            del data["accelerators"]
        for key in ("npu", "flashing", "flash"):
            if data[key] is None:
                del data[key]
        for key in [key for key, value in data.get("flashing", {}).items() if not value]:
            del data["flashing"][key]
        for key in ("package", "url"):
            if data["toolchain"][key] is None:
                del data["toolchain"][key]
        return data
