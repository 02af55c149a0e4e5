"""What no board can be: contradictions among a board's keys, each told with its key.

Boards that ship are checked by tests, and exports for them don't wait for this.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from crtexport.firmware.vela import CONFIGURATIONS

if TYPE_CHECKING:
    from crtexport.firmware.board_schema import Board

LEAST_STACK = 128
"""Bytes without which no call of a model returns."""

_CONSOLES = {
    "cortex_m": ("semihosting",), "riscv": ("semihosting",), "i386": ("uart16550",),
    "host": ("stdio",), "other": ("none",),
}
_RUNNERS = {"host": ("native", "none"), "other": ("none",)}
_COUNTERS = {"cortex_m": "systick", "riscv": "minstret", "i386": "tsc"}


class ContradictionError(ValueError):
    """``problem`` stands under the key at the end of ``key``."""

    def __init__(self, key: tuple[str, ...], problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.key, self.hint = key, hint


def near(word: str, known: Iterable[str]) -> str:
    """A hint at what may have been meant by a name that nobody has."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there are {', '.join(names[:40])}{' …' if len(names) > 40 else ''}"


def check(board: Board) -> None:
    """Raises ContradictionError for what can't be true of one board."""
    from crtexport.firmware.cpu_rules import check_cpu  # noqa: PLC0415  (imports this module)

    _check_kinds(board)
    check_cpu(board)
    if board.stack_size % board.cpu.stack_align:
        raise ContradictionError(
            ("stack_size",),
            f"{board.stack_size} bytes are no multiple of what the stack is aligned to "
            f"(cpu: stack_align), {board.cpu.stack_align}",
        )
    if board.stack_size < LEAST_STACK:
        raise ContradictionError(
            ("stack_size",), f"{board.stack_size} bytes are too few for any program",
            f"{LEAST_STACK} are the least",
        )
    if board.npu is not None:
        _check_accelerator(board.npu.accelerator, board.npu.system_config)
    if not board.hosted:
        _check_memories(board)


def _check_kinds(board: Board) -> None:
    what = f"the architecture {board.architecture}"
    runners = _RUNNERS.get(board.architecture, ("qemu", "none"))
    if board.runner.kind not in runners:
        raise ContradictionError(
            ("runner", "kind"), f"{what} has no runner of the kind {board.runner.kind}",
            f"it has {' and '.join(runners)}",
        )
    console = board.console
    if console.kind not in _CONSOLES[board.architecture]:
        raise ContradictionError(
            ("console", "kind"), f"{what} has no console of the kind {console.kind}",
            f"it has {' and '.join(_CONSOLES[board.architecture])}",
        )
    if (console.address is None) == (console.kind == "uart16550"):
        raise ContradictionError(
            ("console", "address"),
            "a uart16550 needs its I/O port" if console.address is None
            else f"a console of the kind {console.kind} has no address",
        )
    counter = board.counter
    if counter.kind not in ("none", _COUNTERS.get(board.architecture)):
        raise ContradictionError(
            ("counter", "kind"), f"{what} has no counter of the kind {counter.kind}",
            f"it has {_COUNTERS.get(board.architecture, 'none')}",
        )
    if counter.hz is not None and counter.kind != "systick":
        raise ContradictionError(("counter", "hz"), "only a systick counter has a clock")
    if board.architecture == "other" and board.backend != "c":
        raise ContradictionError(
            ("backend",), "code for other processors is C source only", "write backend: c",
        )
    if board.architecture == "other" and board.llvm_options:
        raise ContradictionError(("llvm_options",), "LLVM has no part in code for other processors")


def _check_memories(board: Board) -> None:
    for kind, named in asdict(board.placement).items():
        for region in (named,) if isinstance(named, str) else named:
            if region not in board.memory:
                raise ContradictionError(
                    ("placement", kind),
                    f"placement puts {kind} into memory {region!r}, which is not under memory",
                )
    if len(set(board.placement.workspaces)) != len(board.placement.workspaces):
        raise ContradictionError(
            ("placement", "spill"), "placement names a memory twice for the workspace"
        )
    _check_reached(board)
    regions = sorted(board.memory.items(), key=lambda item: item[1].origin)
    for (first, low), (second, high) in itertools.pairwise(regions):
        if low.origin + low.size > high.origin:
            raise ContradictionError(("memory", second), f"memories {first} and {second} overlap")
    for name, memory in regions:
        if memory.origin % 4:
            raise ContradictionError(
                ("memory", name, "origin"), f"memory {name} doesn't begin at a multiple of 4"
            )
    _check_addresses(board)
    if board.stack_size >= board.memory[board.placement.stack].size:
        raise ContradictionError(
            ("stack_size",), f"the stack is larger than memory {board.placement.stack}"
        )


def _check_addresses(board: Board) -> None:
    """Processors with pointers of 16 bits may fetch code from a memory that pointers don't reach,
    and linkers call an address space by what stands above these bits."""
    bits, place = board.cpu.pointer_bits, board.placement
    code_alone = {place.vectors, place.code} - {*board.ram, place.constants}
    for name, memory in board.memory.items():
        begin = memory.origin
        if bits == 16:
            if name in code_alone:
                continue
            begin %= 1 << bits
        if begin + memory.size > 1 << bits:
            raise ContradictionError(
                ("memory", name),
                f"memory {name} ends above the addresses that the processor has"
                + (", where only code may be" if bits == 16 else ""),
            )


def _check_accelerator(name: str, system: str) -> None:
    if name not in CONFIGURATIONS:
        raise ContradictionError(
            ("npu", "accelerator"), f"there is no Ethos-U {name!r}", near(name, CONFIGURATIONS)
        )
    family = name.removeprefix("ethos-").split("-")[0]  # u55
    if system and not system.lower().startswith(f"ethos_{family}_"):
        raise ContradictionError(
            ("npu", "system_config"), f"the configuration {system!r} is not for an {name}",
            f"those of Arm/vela.ini for it begin with Ethos_{family.upper()}_",
        )


def _check_reached(board: Board) -> None:
    """Raises ContradictionError where the Ethos-U couldn't read constants or use a workspace."""
    reached = board.npu.memories if board.npu is not None else ()
    key = ("npu", "memories")
    for name in reached:
        if name not in board.memory:
            raise ContradictionError(key, f"npu reaches memory {name!r}, which is not under memory")
    if reached and board.placement.constants not in reached:
        raise ContradictionError(
            key, f"npu doesn't reach the constants in {board.placement.constants}"
        )
    if reached and not set(reached) & set(board.placement.workspaces):
        raise ContradictionError(key, "npu reaches no memory of the workspace")
