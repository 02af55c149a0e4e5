"""Finds and runs the programs that a build needs; errors name missing ones and quote those that
fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from crtexport.support.errors import RunFailedError, ToolMissingError
from crtexport.support.shortage import ShortageError, shortage

LOG_LINES = 30
"""Lines of a failed tool's output that an error quotes."""

BUILD_TIMEOUT = 600.0
"""Seconds that one build may take."""


def find_tool(name: str, package: str | None, url: str | None = None) -> str:
    """Returns the path of program ``name``. Raises ToolMissingError that names the Debian
    ``package``, or the ``url`` to download it from."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(
            f"the program {name} is not installed",
            hint=f"on Debian: apt-get install {package}" if package
            else f"get it from {url}" if url else None,
        )
    return found


def log_tail(text: str, lines: int = LOG_LINES) -> str:
    """Returns the last lines of ``text``, indented for an error."""
    kept = text.rstrip().splitlines()[-lines:]
    return "\n".join(f"  | {line}" for line in kept) or "  | (no output)"


def run_tool(
    command: Sequence[str], *, cwd: Path, what: str, timeout: float = BUILD_TIMEOUT
) -> str:
    """Runs ``command`` in ``cwd``; returns its output. ``what`` names the step in errors.

    Raises RunFailedError with the end of the output when it fails or takes longer than ``timeout``
    seconds.
    """
    try:
        process = subprocess.Popen(
            list(command), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
    except OSError as error:
        lacking = shortage(error)
        raise lacking if isinstance(lacking, ShortageError) else RunFailedError(
            f"{what}: {command[0]} does not start: {error.strerror}"
        ) from error
    with process:
        try:
            told, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            end_with_children(process)
            raise RunFailedError(f"{what} took longer than {timeout:g} seconds") from error
        except BaseException:
            end_with_children(process)
            raise
    text = told.decode("utf-8", "replace")
    if process.returncode != 0:
        raise RunFailedError(f"{what} failed ({command[0]}):\n{log_tail(text)}")
    return text


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Ends a program that was started in a session of its own, with all its child processes, such
    as the compilers that make starts."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
