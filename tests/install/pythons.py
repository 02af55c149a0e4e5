"""The Pythons of this computer, one of each version that crtexport may be installed for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MINORS = (11, 12, 13, 14)
_SECONDS = 60


def find_pythons(uv: str, folder: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Python 3.x by x, and why one could not be had. What uv brings is put into ``folder``."""
    found: dict[int, str] = {}
    missing: dict[int, str] = {}
    for minor in MINORS:
        python = next((p for p in _candidates(minor) if _is(p, minor)), None)
        if python is None:
            python, missing[minor] = _brought(uv, minor, folder)
        if python is not None:
            found[minor] = python
            missing.pop(minor, None)
    return found, missing


def _candidates(minor: int) -> Iterator[str]:
    name = f"python3.{minor}"
    yield str(Path(sys.base_prefix) / "bin" / name)
    on_path = shutil.which(name)
    if on_path:
        yield on_path
    yield f"/usr/bin/{name}"
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(root.glob(f"versions/3.{minor}.*/bin/{name}"), reverse=True))


def _is(python: str, minor: int) -> bool:
    """A launcher may be there without a Python behind it."""
    look = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
    try:
        done = subprocess.run([python, "-c", look], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _brought(uv: str, minor: int, folder: Path) -> tuple[str | None, str]:
    """Returns what uv installs, or why it doesn't."""
    try:
        done = subprocess.run(
            [uv, "python", "install", "--no-bin", "--install-dir", str(folder), f"3.{minor}"],
            capture_output=True, text=True, check=False, timeout=_SECONDS,
            env={**os.environ, "UV_HTTP_RETRIES": "0"},
        )
    except subprocess.TimeoutExpired:
        return None, f"not on this computer, and uv hasn't brought it within {_SECONDS} seconds"
    made = sorted(folder.glob(f"*/bin/python3.{minor}"))
    if made:
        return str(made[-1]), ""
    words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return None, f"not on this computer, and uv can't bring it ({words[-1].strip()})"
