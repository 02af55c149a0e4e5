"""``crtexport boards``: lists the boards, or describes one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from msgspec.structs import asdict

from crtexport.cli.groups import Verb
from crtexport.cli.options import complete_boards, with_output
from crtexport.cli.output import Output
from crtexport.firmware.board import Board, list_boards, list_families, load_board
from crtexport.firmware.sizes import format_size


def _complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Returns completions of the word after ``crtexport boards``: commands and names of boards."""
    commands = [CompletionItem("new", help="Write the file of a board of your own.")]
    found = [*commands, *complete_boards(context, parameter, incomplete)]
    return [item for item in found if str(item.value).startswith(incomplete) and (
        item.type != "file" or not "new".startswith(incomplete)
    )]


class _ShownByDefault(click.Group):
    """A group in which ``show`` is the default command: a first word that is no command is its
    argument."""

    default = "show"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return ["new", self.default]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "new" and cmd_name not in self.commands:
            from crtexport.cli import new_board  # noqa: PLC0415

            self.add_command(new_board.new)
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in ("new", self.default, "-h", "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


@click.group("boards", cls=_ShownByDefault, subcommand_metavar="[NAME|COMMAND] [OPTIONS]")
def command() -> None:
    """List the boards, describe one, or write the file of your own.

    `crtexport boards` and `crtexport boards NAME` are short for `crtexport boards show`.
    """


@command.command("show", cls=Verb, short_help="List the boards, or describe one.")
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--families", is_flag=True, help="List the families that your own boards can extend.")
@with_output
def show(out: Output, name: str | None, families: bool) -> None:
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
