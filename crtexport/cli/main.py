"""The program ``crtexport``: finds the command, and turns errors into messages and exit codes.

Exit codes: 0 success, 1 a run or a comparison failed, 2 bad input or usage, 3 a tool is missing, 70
a defect of this program, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import crtexport
from crtexport.cli.options import Settings
from crtexport.support.errors import CrtExportError, Terminated

_INTERNAL = 70  # EX_SOFTWARE
_INTERRUPTED = 130
_TERMINATED = 143

COMMANDS = {
    "bench": "Measure what models cost on boards, layer by layer.",
    "boards": "List the boards, describe one, or write your own.",
    "build": "Turn a package into a project or library for a build system.",
    "convert": "Turn a model into model.json.",
    "diff": "Compare two reports, within limits.",
    "doctor": "List the tools that commands use, and which are installed.",
    "export": "Export a model as a package for a board.",
    "inspect": "Show a package, or a stage of exporting a model.",
    "plan": "Compare a model's plans: RAM against instructions.",
    "quantize": "Quantize a float model with calibration data.",
    "report": "Report what a model costs on a board, as a page or JSON.",
    "run": "Build a package's firmware, run it and measure it.",
    "schema": "Print the JSON Schema of model.json or reports.",
    "simulate": "Run a package's code on this computer.",
    "unpack": "Unpack a package's headers, sources and objects.",
    "verify": "Compare a model with the reference runtime.",
    "zephyr": "Boards, checks and reports for builds of Zephyr.",
}
"""Short descriptions by command. Each command is a module in this folder that is imported only when
it is used, so that no command waits for imports of others."""


class _ModelFirst(click.Group):
    """A first argument that is no command is a model to export."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module = importlib.import_module(f"crtexport.cli.{cmd_name}")
            self.add_command(module.command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [
            *(CompletionItem(name, help=words) for name, words in COMMANDS.items()
              if name.startswith(incomplete)),
            *click.Command.shell_complete(self, ctx, incomplete),
        ] or [CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"] and not Path("help").exists():
            args = [*args[1:], "--help"]
        if args and args[0] not in COMMANDS and args[0] not in ("-h", "--help", "--version"):
            if not args[0].startswith("-") and not Path(args[0]).exists():
                self._fail_if_misspelt(ctx, args[0])
            args = ["export", *args]
        return super().parse_args(ctx, args)

    def _fail_if_misspelt(self, ctx: click.Context, word: str) -> None:
        import difflib  # noqa: PLC0415

        meant = difflib.get_close_matches(word, COMMANDS, n=1)
        if meant:
            ctx.fail(f"there is no command or model {word!r}; did you mean {meant[0]!r}?")


@click.group(
    cls=_ModelFirst,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="",
    subcommand_metavar="MODEL|COMMAND [OPTIONS]",
    epilog="`crtexport MODEL --board NAME` is short for `crtexport export MODEL --board NAME`.",
)
@click.version_option(crtexport.__version__, prog_name="crtexport")
def cli() -> None:
    """Export trained networks as static C or objects for microcontrollers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. ``arguments`` default to the process's."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Read before parsing, which may fail: errors are printed as --json and --debug say.
    settings = Settings(as_json="--json" in itertools.takewhile("--".__ne__, words))
    try:
        code = cli.main(
            args=words, prog_name="crtexport", standalone_mode=False, obj=settings
        )
        sys.stdout.flush()
        return int(code or 0)
    except CrtExportError as error:
        return _fail(settings, error, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        problem, hint = error.format_message(), None
        if isinstance(error, click.UsageError):
            from crtexport.cli.usage import explained  # noqa: PLC0415  (only for errors)

            problem, hint = explained(error)
        return _fail(settings, CrtExportError(problem, hint=hint), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _end_llvm()
        return _fail(settings, CrtExportError("interrupted"), _INTERRUPTED)
    except Terminated:
        _end_llvm()
        return _fail(settings, CrtExportError("terminated"), _TERMINATED)
    except BrokenPipeError:  # the reader of our output has closed it
        return 1
    except Exception as error:  # the last resort, so that users see words instead of a traceback
        from crtexport.support.shortage import shortage  # noqa: PLC0415

        lacking = shortage(error)
        if lacking is None:
            return _defect(error, settings)
        return _fail(settings, lacking, lacking.exit_code)


def _end_llvm() -> None:
    """Ends LLVM's worker processes, if any were started."""
    pool = sys.modules.get("crtexport.backends.llvm.pool")
    if pool is not None:
        pool.POOL.abandon()


def _defect(error: Exception, settings: Settings) -> int:
    return _fail(settings, CrtExportError(
        f"internal error ({type(error).__name__}: {error})",
        hint="this is a defect of crtexport, please report it; --debug shows where it is",
    ), _INTERNAL)


def _fail(settings: Settings, error: CrtExportError, code: int) -> int:
    """Writes the error to stderr, and with ``--json`` as an object to stdout; returns ``code``."""
    with contextlib.suppress(OSError):  # the reader may have closed it
        if code in (_INTERRUPTED, _TERMINATED):
            click.echo(str(error), err=True)
        else:
            _show_trace(settings)
            click.echo(click.style("error: ", fg="red", bold=True) + str(error), err=True)
    if settings.as_json:
        import json  # noqa: PLC0415

        facts = {
            "exit_code": code, "location": error.location, "problem": error.problem,
            "hint": error.hint,
        }
        with contextlib.suppress(OSError):
            sys.stdout.write(json.dumps({"error": facts}, indent=2) + "\n")
            sys.stdout.flush()
    return code


def _show_trace(settings: Settings) -> None:
    if settings.debug:
        import traceback  # noqa: PLC0415

        click.echo(traceback.format_exc(), err=True, nl=False)
