"""One network: exported for a Cortex-M4, and compared with what a reference runtime gives."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tests.catalogue.records import Network

M4 = """\
name: m4
description: Cortex-M4F with memory for anything
extends: mps2_an386
memory:
  flash: {origin: 0x00000000, size: 256MiB}
  ram: {origin: 0x20000000, size: 256MiB}
"""

_SECONDS = 600
_BYTES = 4 << 30
_NUMERICS = ("tflite", "litert", "tflm")


def tried(network: Network, file: Path, board: Path) -> Network:
    """Returns the network with what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "network.tar"
        code, told = _crtexport("export", file, "--board", board, "-o", package)
    if code:
        words = _words(code, told)
        return msgspec.structs.replace(_untried(network), result="refused", words=words)
    memory = told["bytes"]
    known = msgspec.structs.replace(
        _untried(network), result="exported", workspace=memory["workspace"], state=memory["state"],
        buffers=memory["inputs"] + memory["outputs"],
    )
    refusals = []
    for numerics in _NUMERICS:
        code, told = _crtexport("verify", file, "--samples", "3", "--numerics", numerics)
        if code in (0, 1) and "reference" in told:
            words = told["reference"]
            result = "exact" if told["agrees"] else "differs"
            found = msgspec.structs.replace(known, result=result, words=words, numerics=numerics)
            if result == "exact":
                return found
            refusals.append(found)
    # No reference that runs it agrees, or there is none.
    return refusals[0] if refusals else msgspec.structs.replace(known, words=_words(code, told))


def _untried(network: Network) -> Network:
    return Network(network.repository, network.path, network.sha256, network.size)


def _crtexport(*words: object) -> tuple[int, Any]:
    command = [sys.executable, "-m", "crtexport", *map(str, words), "--json"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES)),
        )
    except subprocess.TimeoutExpired:
        return 124, {"error": {"problem": f"not done after {_SECONDS} seconds", "location": []}}
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"error": {"problem": done.stderr[-500:], "location": []}}


def _words(code: int, told: Any) -> str:
    problem = told.get("error", {}).get("problem", str(told))
    return problem if code == 2 else f"exit {code}: {problem}"
