"""One network: exported for a Cortex-M4, and compared with what a reference runtime gives."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tests.catalogue.records import Network
from tests.catalogue.rounding import distances

M4 = """\
name: m4
description: Cortex-M4F with memory for anything
extends: mps2_an386
memory:
  flash: {origin: 0x00000000, size: 256MiB}
  ram: {origin: 0x20000000, size: 256MiB}
"""

_SECONDS = 600
_WATCHED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, ({_SECONDS}, {_SECONDS}))
pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "crtexport", *sys.argv[1:]], os.environ)
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss << 10)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs crtexport, and prints the most memory that one of its processes took. It is a program of its
own because a process begins with the peak of the one that started it."""

_SAMPLES = 3
_NUMERICS = ("tflite", "litert", "tflm")


def tried(network: Network, file: Path, board: Path) -> Network:
    """Returns the network with what became of it."""
    known = measured(_untried(network, "exported"), file, board)
    if known.result == "refused":
        return known
    refusals = []
    for numerics in _NUMERICS:
        code, told, _ = _crtexport("verify", file, "--samples", _SAMPLES, "--numerics", numerics)
        if code in (0, 1) and "reference" in told:
            words = told["reference"]
            result = "exact" if told["agrees"] else "differs"
            found = msgspec.structs.replace(known, result=result, words=words, numerics=numerics)
            if result == "exact":
                return found
            refusals.append(found)
    # No reference that runs it agrees, or there is none.
    if not refusals:
        return msgspec.structs.replace(known, words=_words(code, told))
    return _rounded(refusals[0], file)


def _rounded(network: Network, file: Path) -> Network:
    """Returns a network that differs, with "rounding" as its result where that is the reason."""
    found = distances(file, network.numerics, _SAMPLES)
    if not found or not all(output.is_rounding for output in found):
        return network
    most = max(found, key=lambda output: output.ours)
    words = (
        f"{most.ours:.1e} of full scale from double precision, {network.words} {most.theirs:.1e}"
    )
    return msgspec.structs.replace(network, result="rounding", words=words)


def measured(network: Network, file: Path, board: Path) -> Network:
    """Returns the network with the memory that it takes and its export took; refused, if it is."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "network.tar"
        code, told, peak = _crtexport("export", file, "--board", board, "-o", package)
    if code:
        words = _words(code, told)
        return msgspec.structs.replace(_untried(network, "refused"), words=words)
    memory = told["bytes"]
    return msgspec.structs.replace(
        network, workspace=memory["workspace"], state=memory["state"],
        buffers=memory["inputs"] + memory["outputs"], peak=peak,
    )


def _untried(network: Network, result: str = "") -> Network:
    return Network(network.repository, network.path, network.sha256, network.size, result)


def _crtexport(*words: object) -> tuple[int, Any, int]:
    """Returns the exit status, what was printed, and the peak of memory in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, *map(str, words), "--json"],
        capture_output=True, text=True, check=False,
    )
    told, _, peak = done.stdout.rstrip().rpartition("\n")
    try:
        return done.returncode, json.loads(told), int(peak)
    except ValueError:
        problem = done.stderr[-500:] or f"not done after {_SECONDS} seconds of a processor"
        return done.returncode, {"error": {"problem": problem, "location": []}}, 0


def _words(code: int, told: Any) -> str:
    problem = told.get("error", {}).get("problem", str(told))
    return problem if code == 2 else f"exit {code}: {problem}"
