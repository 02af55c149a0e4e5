"""Shared by many tests: paths, reference inputs, and the treatment of a missing tool.

Import it as ``tests.helpers``; fixtures are in ``conftest.py``.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest

from crtexport.firmware.board import load_board
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import ReferenceRuntime, RuntimeName, find_runtime
from crtexport.support.errors import RunFailedError, ToolMissingError
from crtexport.support.target import Target

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

SHARED_MODELS = ROOT.parent / "shared" / "models"
"""The MLPerf Tiny networks, kept beside the checkout and not in it."""

INT8_NETWORKS = ("ad01_int8", "kws_int8", "resnet8_int8", "vww96_int8")
FLOAT_NETWORKS = ("ad01_fp32", "kws_fp32", "resnet8_fp32", "vww96_fp32")

HASHED_INPUTS = 16
FNV_OFFSET = 2166136261
FNV_PRIME = 16777619


def demanded() -> frozenset[str]:
    """The names in ``CRTEXPORT_REQUIRE`` (separated by commas): what must not be missing here."""
    names = os.environ.get("CRTEXPORT_REQUIRE", "").split(",")
    return frozenset(name.strip() for name in names if name.strip())


def unavailable(what: str, reason: str) -> NoReturn:
    """Skip the test for want of ``what``, or fail it where ``CRTEXPORT_REQUIRE`` lists ``what``."""
    if what in demanded():
        pytest.fail(f"{reason} (CRTEXPORT_REQUIRE lists {what})", pytrace=False)
    pytest.skip(reason)


def require(tool: str) -> str:
    """The path of the program ``tool``, e.g. ``qemu-system-arm``; without it see unavailable()."""
    found = shutil.which(tool)
    if found is None:
        unavailable(tool, f"{tool} is not installed")
    return found


def require_module(module: str) -> None:
    """Skip (or fail, see unavailable()) where the Python module can't be imported."""
    if importlib.util.find_spec(module) is None:
        unavailable(module, f"the Python module {module} is not installed")


def require_reference(name: RuntimeName = "tflite-runtime") -> ReferenceRuntime:
    """Returns the place of the reference runtime; without it see unavailable()."""
    try:
        return find_runtime(name)
    except ToolMissingError as missing:
        unavailable(name, str(missing))


def require_exact_products() -> None:
    """Skip where ONNX Runtime's products of uint8 and int8 saturate in 16 bits: on x86-64 without
    VNNI."""
    flags = Path("/proc/cpuinfo")
    if platform.machine() == "x86_64" and "vnni" not in flags.read_text(encoding="ascii"):
        pytest.skip("ONNX Runtime's integer products saturate on this processor, without VNNI")


@functools.cache
def require_environment(name: str, *modules: str) -> str:
    """The Python of the environment ``.venv-NAME``, or of the one that ``CRTEXPORT_NAME_PYTHON``
    names, which has all ``modules``; without the first of them that is missing see unavailable().
    """
    variable = f"CRTEXPORT_{name.upper().replace('-', '_')}_PYTHON"
    python = os.environ.get(variable) or str(ROOT / f".venv-{name}" / "bin" / "python")
    for module in modules:
        look = f"import sys, importlib.util as u; sys.exit(u.find_spec({module!r}) is None)"
        if not shutil.which(python) or subprocess.run((python, "-c", look), check=False).returncode:
            unavailable(module, f"{python} has no {module}; {variable} names another Python")
    return python


_processes: dict[RuntimeName, ReferenceModel] = {}


def reference(model: bytes | Path, name: RuntimeName = "tflite-runtime") -> ReferenceModel:
    """The reference runtime with ``model`` loaded anew; without it see unavailable().

    Its process is there for all tests of this one, so it has this model until the next call.
    """
    if name in _processes:
        try:
            _processes[name].load(model)
            return _processes[name]
        except RunFailedError:  # what an earlier model made of the process
            del _processes[name]
    _processes[name] = ReferenceModel(model, runtime=require_reference(name))
    atexit.register(_processes[name].close)
    return _processes[name]


_INSTRUCTIONS = {
    "host_avx2": ("avx2", "fma"), "host_vnni": ("avx2", "fma", "avx_vnni"),
    "host_avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"),
}


def require_processor(board: str) -> None:
    """Skip (or fail, see unavailable()) where this computer can't run the board's code."""
    flags = Path("/proc/cpuinfo")
    known = set(flags.read_text(encoding="ascii").split()) if flags.exists() else set()
    for needed in _INSTRUCTIONS.get(board, ()):
        if needed not in known:
            unavailable(needed, f"this computer's processor has no {needed}")


@functools.cache
def target_of(board: str) -> Target:
    """The target of a board that comes with crtexport, read from its file once."""
    return load_board(board).target


def shared_model(name: str) -> Path:
    """The path of one reference network, e.g. ``"kws_int8"``; without it see unavailable()."""
    path = SHARED_MODELS / f"{name}.tflite"
    if not path.is_file():
        unavailable("models", f"../shared/models/{name}.tflite is not beside the checkout")
    return path


@functools.cache
def tflm_outputs() -> dict[str, dict[str, Any]]:
    """Returns TFLM's results on devices, by network: ``out``, ``fnv1a``, ``fpr_all``."""
    path = SHARED_MODELS / "tflm_outputs.json"
    if not path.is_file():
        unavailable("models", "../shared/models/tflm_outputs.json is not beside the checkout")
    outputs: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return outputs


def standard_input(shape: tuple[int, ...]) -> npt.NDArray[np.int8]:
    """``x[i] = (i*37 + 11) % 256 - 128`` over the flattened input; its result is ``fnv1a``."""
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return ((i * 37 + 11) % 256 - 128).astype(np.int8).reshape(shape)


def hashed_input(k: int, shape: tuple[int, ...]) -> npt.NDArray[np.int8]:
    """Pseudo-random input ``k`` of 0..15; all 16 results in order hash to ``fpr_all``."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    mixed = (i + np.uint64(1000003 * k)) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    bits = (mixed >> np.uint64(13)) & np.uint64(255)
    return (bits.astype(np.int64) - 128).astype(np.int8).reshape(shape)


def fnv1a(data: bytes, state: int = FNV_OFFSET) -> int:
    """The 32-bit FNV-1a hash of ``data``, going on from ``state``."""
    for byte in data:
        state = ((state ^ byte) * FNV_PRIME) & 0xFFFFFFFF
    return state
