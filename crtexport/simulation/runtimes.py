"""Finds the reference runtimes, and makes an environment for one that is missing.

tflite-runtime needs NumPy 1 and Python 3.11 or older, so it can seldom share crtexport's
environment. Searched are, in this order: the Python that ``CRTEXPORT_TFLITE_PYTHON``,
``CRTEXPORT_LITERT_PYTHON``, ``CRTEXPORT_TFLM_PYTHON``, ``CRTEXPORT_ONNX_PYTHON`` or
``CRTEXPORT_QUANTIZER_PYTHON`` names, the environment that :func:`install` made, and the Python that
runs this.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from msgspec import Struct

from crtexport.ir.numerics import Numerics
from crtexport.support.errors import CrtExportError, ToolMissingError
from crtexport.support.resources import cache_folder

RuntimeName = Literal[
    "tflite-runtime", "ai-edge-litert", "tflite-micro", "onnxruntime", "onnxruntime.quantization",
    "ai-edge-quantizer",
]

_TIMEOUT = 900  # seconds for making an environment over a slow network


class _Kind(Struct, frozen=True):
    """The modules and packages of a runtime; ``pythons`` are minor versions, the best first,
    ``command`` is that which installs it."""

    module: str
    variable: str
    extra: str
    packages: tuple[str, ...]
    pythons: tuple[int, ...]
    command: str = "verify"


KINDS: dict[RuntimeName, _Kind] = {
    "tflite-runtime": _Kind(
        "tflite_runtime", "CRTEXPORT_TFLITE_PYTHON", "reference",
        ("tflite-runtime==2.14.0", "numpy>=1.23,<2"), (11, 10, 9),
    ),
    "ai-edge-litert": _Kind(
        "ai_edge_litert", "CRTEXPORT_LITERT_PYTHON", "litert",
        ("ai-edge-litert>=2.0,<3",), (11, 12, 13, 10),
    ),
    "tflite-micro": _Kind(
        "tflite_micro", "CRTEXPORT_TFLM_PYTHON", "tflm",
        ("tflite-micro>=0.dev20260801",), (11, 12, 13, 10),
    ),
    "onnxruntime": _Kind(
        "onnxruntime", "CRTEXPORT_ONNX_PYTHON", "onnx", ("onnxruntime>=1.20",), (11, 12, 13, 14),
    ),
    # Not a runtime: it quantizes for one.
    "onnxruntime.quantization": _Kind(
        "onnx", "CRTEXPORT_ONNX_PYTHON", "quantize", ("onnxruntime>=1.20", "onnx>=1.17"),
        (11, 12, 13, 14), "quantize",
    ),
    "ai-edge-quantizer": _Kind(
        "ai_edge_quantizer", "CRTEXPORT_QUANTIZER_PYTHON", "quantize-tflite",
        ("ai-edge-quantizer>=0.10",), (11, 12, 13, 10), "quantize",
    ),
}

_BY_NUMERICS: dict[Numerics, RuntimeName] = {
    Numerics.TFLITE: "tflite-runtime",
    Numerics.LITERT: "ai-edge-litert",
    Numerics.TFLM: "tflite-micro",
    Numerics.ORT: "onnxruntime",
}


class ReferenceRuntime(Struct, frozen=True):
    """A runtime that seems to be installed, and the Python that runs it."""

    name: RuntimeName
    python: str


def find_runtime(name: RuntimeName) -> ReferenceRuntime:
    """Returns the runtime ``name`` under the first Python that seems to have it.

    Raises ToolMissingError, with the ways to get it, where none has.
    """
    kind = KINDS[name]
    python = os.environ.get(kind.variable)
    if python:
        return ReferenceRuntime(name, python)
    folder = _folder(name)
    if folder is not None and _python_in(folder).is_file():
        return ReferenceRuntime(name, str(_python_in(folder)))
    if importlib.util.find_spec(kind.module) is None:
        raise ToolMissingError(f"{name} is not installed", hint=installation_hint(name))
    return ReferenceRuntime(name, sys.executable)


def find_reference(numerics: Numerics) -> ReferenceRuntime:
    """Returns the runtime whose reference kernels the integers of ``numerics`` equal.

    Raises ToolMissingError, with the ways to get it, where it isn't installed.
    """
    return find_runtime(_BY_NUMERICS[numerics])


def runtime_of(numerics: Numerics) -> RuntimeName:
    """Returns the name of the runtime that :func:`find_reference` looks for."""
    return _BY_NUMERICS[numerics]


def install(name: RuntimeName) -> ReferenceRuntime:
    """Makes an environment for the runtime ``name`` in the user's cache, where there is none.

    Returns what :func:`find_runtime` returns from then on. The Python is this one if the runtime
    has wheels for it, else another of this computer, else one that uv downloads; packages come from
    the configured index of pip or uv. The environment appears when it is complete. Raises
    ToolMissingError where no Python fits or the packages can't be had, CrtExportError where the
    cache can't be written.
    """
    if os.environ.get(KINDS[name].variable):
        return find_runtime(name)
    folder = _folder(name)
    if folder is None:
        raise CrtExportError(
            f"there is no folder for the environment for {name}",
            hint="XDG_CACHE_HOME names a folder for caches, HOME the one that has it else",
        )
    if not _python_in(folder).is_file():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as new:
                _fill(Path(new) / "environment", name)
                if not _python_in(folder).is_file():  # gone with the Python that it was made of
                    shutil.rmtree(folder, ignore_errors=True)
                _put(Path(new) / "environment", folder)
        except OSError as error:
            raise CrtExportError(
                f"the environment for {name} can't be made ({error.strerror or error})",
                location=str(folder), hint="XDG_CACHE_HOME names another folder for caches",
            ) from None
    return find_runtime(name)


def installation_hint(name: RuntimeName) -> str:
    """Returns the ways to get the runtime, as a hint."""
    kind = KINDS[name]
    where = " (Python 3.9 to 3.11, NumPy 1)" if name == "tflite-runtime" else ""
    return (
        f"crtexport {kind.command} --install-reference makes an environment of its own for it; or"
        f" pip install 'crtexport[{kind.extra}]'{where}; or set {kind.variable} to the Python of"
        " an environment that has it"
    )


def _folder(name: RuntimeName) -> Path | None:
    """Returns the folder of the environment that :func:`install` makes; other packages have another
    one."""
    cache = cache_folder()
    release = KINDS[name].packages[0].partition("=")[2].strip("=").partition(",")[0]
    return None if cache is None else cache / f"{name}-{release}"


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _put(environment: Path, folder: Path) -> None:
    """Moves the environment to its place, unless another process has made the same meanwhile."""
    try:
        environment.rename(folder)
    except OSError:
        if not _python_in(folder).is_file():
            raise


def _fill(folder: Path, name: RuntimeName) -> None:
    kind = KINDS[name]
    python, uv = _fitting_python(kind), shutil.which("uv")
    new = str(_python_in(folder))
    if python is not None and _has_venv(python):
        _command([python, "-m", "venv", str(folder)], name)
        _command(
            [new, "-m", "pip", "install", "-q", "--disable-pip-version-check", *kind.packages], name
        )
    elif uv is not None:
        wanted = python or f"3.{kind.pythons[0]}"
        _command([uv, "venv", "-q", "--no-project", "--python", wanted, str(folder)], name)
        _command([uv, "pip", "install", "-q", "--python", new, *kind.packages], name)
    elif python is not None:
        raise ToolMissingError(
            "this Python makes no environments", location=python,
            hint="apt-get install python3-venv, or pip install uv",
        )
    else:
        versions = ", ".join(f"3.{minor}" for minor in sorted(kind.pythons))
        raise ToolMissingError(
            f"{name} needs Python {versions}, and this computer has none of them",
            hint="install one, or uv (pip install uv), which brings one",
        )


def _fitting_python(kind: _Kind) -> str | None:
    """Returns a Python for which the runtime has wheels, this one if it is such a one."""
    if sys.version_info[1] in kind.pythons:
        return sys.executable
    for minor in kind.pythons:
        found = shutil.which(f"python3.{minor}")
        if found is not None and _runs(found, "pass"):  # a launcher may be there without a Python
            return found
    return None


def _has_venv(python: str) -> bool:
    return _runs(python, "import ensurepip, venv")


def _runs(python: str, code: str) -> bool:
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def _command(arguments: list[str], name: RuntimeName) -> None:
    try:
        done = subprocess.run(
            arguments, capture_output=True, check=False, timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise ToolMissingError(
            f"{name} wasn't installed in {_TIMEOUT} seconds", location=arguments[0]
        ) from None
    if done.returncode:
        text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        words = [line for line in text.splitlines() if not line.startswith("WARNING")]
        raise ToolMissingError(
            f"{name} can't be installed: " + (words or ["no reason reported"])[-1],
            location=" ".join(arguments[:4]), hint=installation_hint(name),
        )
