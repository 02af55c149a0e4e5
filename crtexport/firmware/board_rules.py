"""Makes boards from data, and checks that their keys don't contradict each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict

from crtexport.firmware.architectures import has_llvm, rules_of
from crtexport.firmware.board_schema import Board
from crtexport.firmware.cpu_rules import check_cpu
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import (
    ContradictionError,
    InvalidDataError,
    KeyPath,
    Problem,
    nearest,
    record,
)

ETHOS_U = (
    "ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256",
    "ethos-u65-512", "ethos-u85-128", "ethos-u85-256", "ethos-u85-512", "ethos-u85-1024",
    "ethos-u85-2048",
)
"""Vela's name of each Ethos-U, by product and multiply-accumulates per cycle."""

LEAST_STACK = 128
"""Bytes of the smallest stack on which a model's call can return."""


def board_from_data(
    data: Mapping[str, Any], source: str | Callable[[KeyPath], str] = "board"
) -> Board:
    """Returns the board that ``data`` describes. Raises CrtExportError for its most important
    problem, located in ``source``: a file's name, or a function from keys to the file that each
    came from."""
    data = dict(data)
    try:
        cpu = data.get("cpu")
        triple = cpu.get("triple") if isinstance(cpu, Mapping) else None
        if not has_llvm(str(data.get("architecture")), str(triple or "")):
            _check_c_only(cpu)
            data.setdefault("backend", "c")
        board = record(Board, data)
        _check(board)
    except InvalidDataError as error:
        problem = error.problems[0]
    except ContradictionError as error:
        problem = Problem(error.key, str(error), error.hint)
    else:
        return board
    file = source if isinstance(source, str) else source(problem.path)
    raise CrtExportError(
        problem.text, location=(file, *map(str, problem.path)), hint=problem.hint
    )


def _check_c_only(cpu: object) -> None:
    """Raises ContradictionError if keys are missing that a processor needs for which LLVM generates
    no code: nothing has defaults for it."""
    for key in ("pointer_bits", "endian", "stack_align"):
        if isinstance(cpu, Mapping) and key not in cpu:
            raise ContradictionError(
                ("cpu", key), "this key is missing",
                "nothing else tells it of processors that LLVM doesn't have",
            )


def _check(board: Board) -> None:
    """Raises ContradictionError for keys of a board that contradict each other."""
    _check_kinds(board)
    check_cpu(board)
    if board.stack_size % board.cpu.stack_align:
        raise ContradictionError(
            ("stack_size",),
            f"{board.stack_size} bytes are no multiple of the stack's alignment (cpu: "
            f"stack_align), {board.cpu.stack_align}",
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
    rules, what = rules_of(board.architecture), f"the architecture {board.architecture}"
    for key, kind, allowed in (
        ("runner", board.runner.kind, rules.runners),
        ("console", board.console.kind, rules.consoles),
        ("counter", board.counter.kind, ("none", rules.counter)),
    ):
        if kind not in allowed:
            raise ContradictionError(
                (key, "kind"), f"{what} has no {key} of the kind {kind}",
                f"it has {' and '.join(dict.fromkeys(allowed))}",
            )
    console, counter = board.console, board.counter
    if (console.address is None) == (console.kind == "uart16550"):
        raise ContradictionError(
            ("console", "address"),
            "a uart16550 needs its I/O port" if console.address is None
            else f"a console of the kind {console.kind} has no address",
        )
    if counter.hz is not None and counter.kind != "systick":
        raise ContradictionError(("counter", "hz"), "only a systick counter has a clock")
    if board.c_only and board.backend != "c":
        raise ContradictionError(
            ("backend",), "code for other processors is C source only", "write backend: c",
        )
    if board.c_only and board.llvm_options:
        raise ContradictionError(("llvm_options",), "LLVM has no code for other processors")


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
    """Processors with 16-bit pointers may fetch code from a memory that pointers don't reach;
    linkers select an address space by the address bits above these 16."""
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
    if name not in ETHOS_U:
        raise ContradictionError(
            ("npu", "accelerator"), f"there is no Ethos-U {name!r}", nearest(name, ETHOS_U)
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
