"""Runs Vela, Arm's compiler for Ethos-U, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from crtexport.firmware.toolchain import log_tail
from crtexport.support.errors import CrtExportError, ToolMissingError

PROGRAM = "CRTEXPORT_VELA"
"""Environment variable: the path of Vela, where it is neither beside Python nor in PATH."""

ARMS_CONFIG = "Arm/vela.ini"
"""The configuration file that comes with Vela."""

_SECONDS = 1800
_QUOTED = 12


def compile_model(
    model: Path, accelerator: str, folder: Path, *, system_config: str = "", memory_mode: str = ""
) -> Path:
    """Returns Vela's output for a .tflite file, in ``folder``: the same for the same bytes,
    whatever their path.

    ``system_config`` and ``memory_mode`` are names in Vela's configuration file; empty: Vela's own
    choice. Raises ToolMissingError where Vela isn't installed, CrtExportError with its last words
    where it fails.
    """
    vela = program()
    copy = folder / "model.tflite"
    try:
        shutil.copyfile(model, copy)
    except OSError as error:
        raise CrtExportError(
            f"the model can't be copied for Vela: {error.strerror}", location=model.name
        ) from error
    options = ["--accelerator-config", accelerator, "--output-dir", str(folder)]
    if system_config or memory_mode:
        options += ["--config", ARMS_CONFIG]
    options += ["--system-config", system_config] if system_config else []
    options += ["--memory-mode", memory_mode] if memory_mode else []
    try:
        done = subprocess.run(
            [vela, copy.name, *options], cwd=folder, capture_output=True, text=True,
            errors="backslashreplace", timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise ToolMissingError(
            f"Vela can't be started: {error.strerror}", location=vela
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CrtExportError(
            f"Vela has not finished within {_SECONDS} seconds", location=model.name
        ) from error
    made = folder / "model_vela.tflite"
    if done.returncode or not made.is_file():
        raise CrtExportError(
            f"Vela fails with the exit code {done.returncode}:\n"
            f"{log_tail(done.stdout + done.stderr, _QUOTED)}",
            location=(model.name, accelerator),
        )
    return made


def program() -> str:
    """Returns the path of Vela. Raises ToolMissingError where it isn't installed."""
    named = os.environ.get(PROGRAM)
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
    found = named or shutil.which("vela", path=path)
    if not found:
        raise ToolMissingError(
            "Vela, which compiles for Ethos-U, is not installed",
            hint=f"pip install 'crtexport[ethos-u]', or name the program in {PROGRAM}",
        )
    return found
