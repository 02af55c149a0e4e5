"""The two files that are published: what is in them, and that PyPI would take and show them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.archives import unpack_archive

SOME = ("tests/install", "tests/boards", "tests/importers/test_crtjson.py", "tests/mlf")
"""Tests of which each reads other parts of a checkout."""
_SECONDS = 900


def build(root: Path, folder: Path) -> tuple[Path, Path]:
    """The source distribution of the checkout ``root``, and the wheel that is made of it."""
    _run(["-m", "build", "--no-isolation", "--outdir", str(folder), str(root)], folder)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def check(archive: Path, wheel: Path, folder: Path) -> dict[str, str]:
    """Returns what is wrong with both, by what was tried: PyPI's own rules for the metadata and the
    readme, all tests collected in the unpacked archive, and some of them run there."""
    unpack_archive(archive, folder / "unpacked")
    (checkout,) = (folder / "unpacked").iterdir()
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tried = {
        "twine check": ["-m", "twine", "check", "--strict", str(archive), str(wheel)],
        "all tests of the sdist are found": [*pytest, "--collect-only"],
        "tests of the sdist": [*pytest, "-x", *SOME],
    }
    wrong = {}
    for what, arguments in tried.items():
        try:
            _run(arguments, checkout)
        except RuntimeError as error:
            wrong[what] = str(error)
    return wrong


def _run(arguments: list[str], folder: Path) -> None:
    """Runs this Python. Raises RuntimeError with its last words if it fails."""
    # The networks beside the checkout aren't beside the archive, so nothing may require them.
    variables = {k: v for k, v in os.environ.items() if k != "CRTEXPORT_REQUIRE"}
    variables["PYTHONPATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=variables, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS, check=False,
    )
    if done.returncode:
        words = "\n".join(done.stdout.strip().splitlines()[-20:])
        raise RuntimeError(f"{' '.join(arguments[:3])} ended with {done.returncode}:\n{words}")
