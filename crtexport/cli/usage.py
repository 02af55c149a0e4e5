"""Suggests options and commands for a command line with mistakes."""

from __future__ import annotations

import click

_MEANT = {
    "--target": "--board", "--device": "--board", "--mcu": "--board", "--chip": "--board",
    "--cpu": "--board", "--platform": "--board", "-b": "--board", "-t": "--board",
    "--out": "--output", "--out-dir": "--output", "--output-dir": "--output",
    "--outdir": "--output", "--html": "--output", "-d": "--output", "-i": "--input",
    "--inputs": "--input", "-O": "--optimize", "--opt": "--optimize",
    "--name": "--module-name", "--model-name": "--module-name", "--prefix": "--module-name",
    "--arena": "--ram", "--arena-size": "--ram", "--max-ram": "--ram", "--memory": "--ram",
}
"""Options of other tools, and what they are called here."""

_COMMANDS = {
    "--boards": "boards", "--list-boards": "boards", "--list": "boards", "--build": "build",
    "--format": "build", "--flash": "build", "--report": "report", "--quantize": "quantize",
    "--verify": "verify", "--bench": "bench", "--measure": "report", "--simulate": "simulate",
}
"""Options of other tools that are commands of their own here."""


def explained(error: click.UsageError) -> tuple[str, str | None]:
    """Returns the problem and a hint: which option was meant, or what a missing one is for."""
    context = error.ctx
    if context is None:
        return error.format_message(), None
    usage = f"`{context.command_path} --help` lists the options"
    if isinstance(error, click.NoSuchOption):
        return (
            f"there is no option {error.option_name}",
            f"{_nearest(error.option_name, context)}{usage}",
        )
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Option):
        option = error.param
        spelling, value = option.opts[-1], option.make_metavar(context)
        return f"{spelling} is missing", f"{spelling} {value}: {option.help} {usage}"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{error.param.make_metavar(context)} is missing", f"{usage} and arguments"
    return error.format_message(), usage


def _nearest(name: str, context: click.Context) -> str:
    """Returns a sentence that says which of a command's options an unknown one may be, or ""."""
    known = [spelling for option in context.command.params for spelling in option.opts]
    if _MEANT.get(name) in known:
        return f"did you mean {_MEANT[name]!r}? "
    command = _COMMANDS.get(name)
    if command is not None and context.command.name != command:
        return f"there is a command `crtexport {command}`; "
    from crtexport.support.schema import did_you_mean  # noqa: PLC0415  (only where it is unknown)

    meant = did_you_mean(name, [spelling for spelling in known if spelling.startswith("--")])
    return f"{meant} " if meant else ""
