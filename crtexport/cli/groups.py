"""Help texts in groups: options under headings, which are the same in all commands."""

from __future__ import annotations

import click

_LIMITS = "Limits"
_MESSAGES = "Messages"

GROUPS: dict[str, tuple[str, ...]] = {
    "Board and code": (
        "--board", "--extends", "--memory", "--description", "--compiler", "--flags", "--emit",
        "--optimize", "--numerics", "--weights", "--accelerator", "--module-name",
        "--no-system-lib", "--large-data", "--device-bundle", "--activations", "--calibration",
        "--keep", "--keep16", "--corrections",
    ),
    "Input": (
        "--input", "--data", "--expected", "--samples", "--seed", "--model", "--onnx",
        "--allow-outside", "--from", "--device", "--core",
    ),
    "Output": (
        "--output", "--stage", "--format", "--library-version", "--of", "--families", "--chart",
        "--unpack", "--depfile", "--zephyr", "--force",
    ),
    "Memory": ("--ram", "--feed", "--stream", "--workspace", "--io", "--const-inputs", "--pool"),
    "Running": (
        "--run", "--runner", "--measure", "--timeout", "--per-layer", "--device-code",
        "--trust-package", "--install-reference",
    ),
    "ONNX files": ("--dim", "--input-shape", "--bind", "--input-layout"),
    "Tuning": ("--tuning", "--tune"),
    "LLVM": ("--split", "--llvm-option", "--llvm-timeout", "--keep-failed", "--jobs"),
    _LIMITS: (),
    _MESSAGES: ("--verbose", "--quiet", "--json", "--debug", "--help"),
}
"""The options of all commands by heading. Limits are all options that begin with --max-."""

_TITLES = {option: title for title, options in GROUPS.items() for option in options}


def title_of(option: click.Parameter) -> str:
    """Returns the heading of an option; "Options" for those of none."""
    for spelling in option.opts:
        if spelling.startswith("--max-"):
            return _LIMITS
        if spelling in _TITLES:
            return _TITLES[spelling]
    return "Options"


class Verb(click.Command):
    """A command whose help lists its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                records.setdefault(title_of(parameter), []).append(record)
        for title in ("Options", *GROUPS):
            if title in records:
                with formatter.section(title):
                    formatter.write_dl(records[title])
