"""Commands and options that texts mention, compared with those that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

OPTION = re.compile(r"(?<![\w.-])--?[A-Za-z][\w-]*")


def command_of(group: click.Group, words: list[str]) -> tuple[str, click.Command]:
    """The command that ``words`` behind ``crtexport`` call, and its name; a model means export.

    Raises LookupError for a word that looks like a command and is none.
    """
    context = click.Context(group)
    first = words[0] if words else ""
    command = group.get_command(context, first)
    if command is None:
        if re.fullmatch(r"[a-z]+", first):
            raise LookupError(f"there is no command {first!r}")
        first = "export"
        command = group.get_command(context, first)
        assert command is not None
        return first, command
    if isinstance(command, click.Group) and len(words) > 1:
        for name in words[1].split("|"):
            inner = command.get_command(click.Context(command), name)
            if inner is None and hasattr(command, "default"):
                return first, command.commands[command.default]
            if inner is None:
                if re.fullmatch(r"[a-z]+", name):
                    raise LookupError(f"there is no command {first} {name!r}")
                return first, command
        assert inner is not None
        return f"{first} {words[1]}", inner
    return first, command


def options_of(command: click.Command) -> set[str]:
    """All spellings of its options."""
    found = {"-h", "--help"}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def check_command(group: click.Group, text: str) -> None:
    """Raises LookupError where ``crtexport …`` in ``text`` isn't what ``group`` has."""
    words = text.removeprefix("crtexport").split()
    if words[:1] in (["--version"], ["--help"]):
        return
    name, command = command_of(group, words)
    known = options_of(command)
    for option in OPTION.findall(" ".join(words)):
        base = option if option.startswith("--") else option[:2]
        if base not in known:
            raise LookupError(f"crtexport {name} has no option {option}")


def all_options(group: click.Group) -> frozenset[str]:
    """Every option of every command."""
    return frozenset(option for command in _commands(group) for option in options_of(command))


def _commands(command: click.Command) -> Iterator[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _commands(inner)
