"""Boards: processor, memories, toolchain and runner, as records.

A board is one YAML file (``boards/README.md`` explains every key), resolved into a frozen
:class:`Board` that knows nothing of files: ``to_data()`` is what a package embeds, so that it can
be built and run where the YAML is not. :mod:`crtexport.validation` reads these records from data.
"""

# Annotations are no text here: msgspec would compile each before it reads a board.

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, json

from crtexport.firmware.sizes import parse_size
from crtexport.target import Target


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
    """Text that YAML folded has its end of line with it; control characters would reach terminals.
    """
    if not isinstance(value, str):
        return value
    line = " ".join(value.split())
    if not line.isprintable():
        raise ValueError("the text has characters that can't be printed")
    return line


def _hexadecimal(address: int) -> str:
    return f"0x{address:08x}"


Size = Annotated[int, Meta(gt=0, extra={"read": parse_size})]
Address = Annotated[int, Meta(ge=0, extra={"read": _address})]
Identifier = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Text = Annotated[str, Meta(min_length=1, extra={"read": _one_line})]
# Words come into Makefiles and shells, packages' words, too: none has a character that is special
# there. Paths may have letters of any language.
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9 _./+=:,@%~^()\[\]\u00a1-\u1fff\u2c00-\ud7ff-]+$")]
Command = Annotated[tuple[Word, ...], Meta(min_length=1)]
DebianPackages = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9+. -]*$")]
LlvmOption = Annotated[str, Meta(pattern=r"^-[A-Za-z0-9_./+=:,-]+$")]
ZephyrName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]+([/@. -][A-Za-z0-9_]+)*$")]


class Cpu(Struct, frozen=True, kw_only=True):
    """What code is generated for; see :class:`crtexport.target.Target` for the meaning.

    Other processors, which LLVM doesn't have, have no triple. Theirs alone may have pointers of 16
    bits, with an ``int`` of 16, and stacks that callers align to less than 4.
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


class Placement(Struct, frozen=True):
    """The memory of each kind of content; what ``.data`` starts with is in ``constants``.

    ``spill``: memories for what of the workspace finds no room in its own, fastest first.
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
        """The memories that the workspace may take, fastest first."""
        return (self.workspace, *self.spill)


class Toolchain(Struct, frozen=True):
    """``compiler`` is the command without flags; ``package`` is the Debian package that has it, or
    ``url`` tells where to get it."""

    kind: Literal["gcc", "clang"]
    compiler: Command
    package: DebianPackages | None = None
    url: Annotated[str, Meta(pattern=r"^https://[A-Za-z0-9/._~%-]+$")] | None = None
    cflags: tuple[Word, ...] = ()
    ldflags: tuple[Word, ...] = ()
    libraries: tuple[Word, ...] = ()


class QemuRunner(Struct, frozen=True, tag_field="kind", tag="qemu"):
    """``command`` starts the machine; kernel, counting and deadline are added to it."""

    kind: ClassVar[Literal["qemu"]] = "qemu"
    command: Command
    package: DebianPackages


class NativeRunner(Struct, frozen=True, tag_field="kind", tag="native"):
    """The program runs on this computer."""

    kind: ClassVar[Literal["native"]] = "native"


class NoRunner(Struct, frozen=True, tag_field="kind", tag="none"):
    """Nothing here can run the board's programs; ``reason`` says why."""

    kind: ClassVar[Literal["none"]] = "none"
    reason: Text


Runner = QemuRunner | NativeRunner | NoRunner


class Console(Struct, frozen=True):
    """Where the firmware prints, if we build any; ``address`` is an I/O port, where the kind has
    one."""

    kind: Literal["semihosting", "uart16550", "stdio", "none"]
    address: Address | None = None


class Counter(Struct, frozen=True):
    """What counts instructions.

    ``tsc`` and ``minstret`` are exact under QEMU with one instruction per nanosecond; ``systick``
    ticks ``hz`` times a second and is exact only with QEMU's plugin; with ``none`` nothing counts.
    """

    kind: Literal["tsc", "minstret", "systick", "none"]
    hz: Annotated[int, Meta(gt=0)] | None = None

    def check(self) -> None:
        """Raises ValueError for a clock that is missing."""
        if self.kind == "systick" and self.hz is None:
            raise ValueError("a systick counter needs hz, the clock that it counts")


class Zephyr(Struct, frozen=True):
    """Zephyr's names: ``board`` since 3.7 (``mps2/an385``), ``legacy`` before (``mps2_an385``)."""

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


class Board(Struct, frozen=True, kw_only=True):
    """A board, resolved: no parents, no files, nothing optional left open."""

    name: Identifier
    description: Text
    architecture: Literal["cortex_m", "riscv", "i386", "host", "other"]
    cpu: Cpu
    memory: dict[Identifier, Memory] = {}
    placement: Placement = Placement()
    stack_size: Size = 8192
    toolchain: Toolchain
    runner: Runner
    console: Console = Console("none")
    counter: Counter = Counter("none")
    backend: Literal["llvm", "c"] = "llvm"
    optimize: Literal["size", "balanced", "speed"] = "balanced"
    large_data_threshold: Size | None = None
    llvm_options: tuple[LlvmOption, ...] = ()
    accelerators: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]+$")], ...] = ()
    npu: Npu | None = None
    zephyr: Zephyr | None = None

    def check(self) -> None:
        """Raises ValueError, a ContradictionError with its key, for what no board can be."""
        from crtexport.firmware.board_rules import check  # noqa: PLC0415  (for boards from data)

        check(self)

    @property
    def hosted(self) -> bool:
        """True if programs run under an operating system, which gives the memory."""
        return self.architecture == "host"

    @property
    def reaches_host(self) -> bool:
        """True if programs that are run reach the files and programs of this computer: without an
        emulator, and by semihosting, which has calls for both."""
        return self.hosted or self.console.kind == "semihosting"

    @property
    def target(self) -> Target:
        """What backends generate code for."""
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
        )

    @property
    def flash(self) -> tuple[str, ...]:
        """Names of the memories that hold code and constants, sorted."""
        place = self.placement
        return () if self.hosted else tuple(sorted({place.vectors, place.code, place.constants}))

    @property
    def ram(self) -> tuple[str, ...]:
        """Names of the memories that hold what changes, sorted."""
        place = self.placement
        if self.hosted:
            return ()
        return tuple(sorted({place.data, *place.workspaces, place.io, place.stack}))

    def to_data(self) -> dict[str, Any]:
        """The board as JSON data, from which :meth:`from_data` makes an equal one."""
        data: dict[str, Any] = json.decode(json.encode(self))
        for name, memory in self.memory.items():
            data["memory"][name]["origin"] = _hexadecimal(memory.origin)
        if self.console.address is not None:
            data["console"]["address"] = _hexadecimal(self.console.address)
        if not self.placement.spill:
            del data["placement"]["spill"]  # as it was before there were any
        if not self.accelerators:
            del data["accelerators"]
        if self.npu is None:
            del data["npu"]
        for key in ("package", "url"):
            if data["toolchain"][key] is None:
                del data["toolchain"][key]
        return data

    @staticmethod
    def from_data(data: Mapping[str, Any], source: str = "board") -> "Board":
        """The board that ``data`` describes. Raises CrtExportError located in ``source``."""
        from crtexport.firmware.schema_errors import board_of  # noqa: PLC0415  (needs pydantic)

        return board_of(data, lambda _: source)
