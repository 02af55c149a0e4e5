"""The place that the blocks of a page run in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from crtexport.cli.main import main


class Place(Struct):
    """The folder of a page, and what its blocks leave to those behind them."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    scope: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    packages: dict[str, Path] = field(default_factory=dict)

    def package(self, arguments: str) -> Path:
        """The unpacked package that ``crtexport ARGUMENTS`` makes."""
        if arguments not in self.packages:
            made = self.folder / f"package{len(self.packages)}"
            words = [*shlex.split(arguments), "-o", f"{made}.tar", "--unpack", str(made), "-q"]
            if main(words):
                pytest.fail(f"crtexport {arguments} failed")
            self.packages[arguments] = made
        return self.packages[arguments]
