"""Finds and runs the programs that a build needs, and says plainly when one is missing or fails."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from crtexport.errors import RunFailedError, ToolMissingError

LOG_LINES = 30
"""How much of a failed tool's output an error quotes."""

BUILD_TIMEOUT = 600.0
"""Seconds that one build may take."""


def find_tool(name: str, package: str) -> str:
    """The path of program ``name``. Raises ToolMissingError that names the Debian ``package``."""
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(
            f"the program {name} is not installed", hint=f"on Debian: apt-get install {package}"
        )
    return found


def log_tail(text: str, lines: int = LOG_LINES) -> str:
    """The last lines of ``text``, indented for an error."""
    kept = text.rstrip().splitlines()[-lines:]
    return "\n".join(f"  | {line}" for line in kept) or "  | (no output)"


def run_tool(
    command: Sequence[str], *, cwd: Path, what: str, timeout: float = BUILD_TIMEOUT
) -> str:
    """Run ``command`` in ``cwd``; returns its output. ``what`` names the step in errors.

    Raises RunFailedError with the end of the output when it fails or takes longer than ``timeout``
    seconds.
    """
    try:
        done = subprocess.run(
            list(command), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=timeout, check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"{what} took longer than {timeout:g} seconds") from error
    except OSError as error:
        raise RunFailedError(f"{what}: {command[0]} does not start: {error.strerror}") from error
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        raise RunFailedError(f"{what} failed ({command[0]}):\n{log_tail(text)}")
    return text
