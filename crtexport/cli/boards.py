"""``crtexport boards``: lists the boards, or describes one."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from crtexport.cli.groups import Verb
from crtexport.cli.options import complete_boards, with_output
from crtexport.cli.output import Output
from crtexport.firmware.board import Board, list_boards, list_families, load_board
from crtexport.firmware.sizes import format_size


@click.command("boards", cls=Verb)
@click.argument("name", required=False, shell_complete=complete_boards)
@click.option("--families", is_flag=True, help="List what boards of one's own can extend.")
@with_output
def command(out: Output, name: str | None, families: bool) -> None:
    """List the boards, or explain the board NAME (or the YAML file at that path)."""
    if families:
        if name is not None:
            raise click.UsageError("--families lists all of them, without NAME")
        known = list_families()
        out.result({"families": [asdict(family) for family in known]})
        out.table("Families", ("name", "processor", "description"),
                  ((one.name, one.processor or "-", one.description) for one in known))
        return
    if name is None:
        listed = list_boards()
        out.result({"boards": [board.to_data() for board in listed]})
        out.table(
            "Boards", ("name", "processor", "flash", "RAM", "runs in", "description"),
            (
                (
                    board.name, board.cpu.name, _total(board, board.flash),
                    _total(board, board.ram), board.runner.kind, board.description,
                )
                for board in listed
            ),
        )
        return
    board = load_board(name)
    out.result(board.to_data())
    _explain(out, board)


def _total(board: Board, regions: tuple[str, ...]) -> str:
    return format_size(sum(board.memory[name].size for name in regions)) if regions else "-"


def _explain(out: Output, board: Board) -> None:
    out.line(f"{board.name}: {board.description}")
    out.line()
    target = board.target
    facts = [
        ("architecture", board.architecture),
        ("triple", target.triple or "-"),
        ("processor", target.cpu),
        ("features", " ".join(target.features) or "-"),
        ("float ABI", target.float_abi or target.abi or (
            "that of the triple" if target.triple else "the compiler's"
        )),
        ("pointers", f"{target.pointer_bits} bits"),
        ("byte order", "little-endian" if target.little_endian else "big-endian"),
        ("stack", f"{board.stack_size} bytes, aligned to {target.stack_align}"),
        ("emits", f"{board.backend}, optimized for {board.optimize}"),
        ("compiler", " ".join((*board.toolchain.compiler, *target.cflags))),
        ("runner", board.runner.kind),
        ("console", board.console.kind),
    ]
    out.table("Board", ("fact", "value"), facts)
    if board.memory:
        places = asdict(board.placement)
        out.table(
            "Memories", ("name", "origin", "size", "bytes", "holds"),
            (
                (
                    name, f"{memory.origin:#010x}", format_size(memory.size), memory.size,
                    ", ".join(kind for kind, region in places.items() if region == name) or "-",
                )
                for name, memory in board.memory.items()
            ),
        )
