"""Packages of the reference networks, exported once for all tests of a process.

Exports are deterministic, which tests/models/test_packages.py holds, so tests that only read or run
a package can share it. Import it as ``tests.exports``.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import crtexport
from crtexport.mlf.reader import Package, open_package
from tests.helpers import shared_model


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="crtexport-tests-")


@functools.cache
def exported_network(name: str, board: str, emit: str, **options: str) -> Package:
    """The package of a reference network; ``options`` as for :func:`crtexport.export`."""
    words = [name, board, emit, *(f"{key}-{value}" for key, value in sorted(options.items()))]
    path = Path(_folder().name) / f"{'.'.join(words)}.tar"
    crtexport.export(shared_model(name), board=board, emit=emit, output=path, **options)
    return open_package(path)


@functools.cache
def unpacked_network(name: str, board: str, emit: str, **options: str) -> tuple[Package, Path]:
    """The package, and the folder that its files are in."""
    package = exported_network(name, board, emit, **options)
    folder = package.path.with_suffix("")
    package.extract(folder)
    return package, folder
