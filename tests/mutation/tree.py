"""A copy of the checkout in which the tests run: the checkout itself is never touched."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_LEFT_OUT = {".git", "build", "dist", "docs"}


class Tree:
    """A copy of the checkout ``root`` in ``folder``."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "checkout"
        shutil.copytree(
            root, self.root, symlinks=True,
            ignore=lambda parent, names: [
                name for name in names
                if name.startswith(".venv") or name.endswith("_cache") or name == "__pycache__"
                or (Path(parent) == root and name in _LEFT_OUT - {"docs"})
            ],
        )
        for environment in root.glob(".venv-*"):  # of the reference runtimes
            (self.root / environment.name).symlink_to(environment.resolve())
        for suites in (root / "build").glob("onnx-*"):  # what tests would make anew
            (self.root / "build").mkdir(exist_ok=True)
            (self.root / "build" / suites.name).symlink_to(suites.resolve())
        shared = root.parent / "shared"
        if shared.is_dir():
            (folder / "shared").symlink_to(shared)

    def write(self, path: str, content: bytes) -> None:
        """Makes ``content`` what a file of the copy has, and what Python runs."""
        file = self.root / path
        file.write_bytes(content)
        # Python tells a stale one by the size and the second: too little for changes of a byte.
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)

    def pytest(
        self, arguments: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> tuple[int | None, str]:
        """(exit code, output) of pytest in the copy; without a code where it took too long."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, start_new_session=True,
            env={
                **os.environ, "CRTEXPORT_EXAMPLES": "mutation", "PYTHONPATH": str(self.root),
                "HYPOTHESIS_STORAGE_DIRECTORY": str(self.root.parent / "hypothesis"),
                **(environment or {}),
            },
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        return process.returncode, output
