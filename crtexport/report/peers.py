"""What others take for networks that everybody measures, as recorded in ``peers.json``.

A figure belongs to one model file (by its SHA-256) and one board; its provenance says who measured
it, with which versions and how.
"""

from __future__ import annotations

import functools
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_FILE = Path(__file__).with_name("peers.json")


class PeerFigure(BaseModel):
    """Instructions of one inference and of what must run before the first; bytes of flash (whole
    program) and RAM (without stack). What was not measured is None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    model: str
    board: str
    peer: str
    instructions: int
    start_up: int | None = None
    flash: int | None = None
    ram: int | None = None
    source: str


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    sources: dict[str, str]
    models: dict[str, str]
    figures: tuple[PeerFigure, ...]


@functools.cache
def _document() -> _Document:
    return _Document.model_validate_json(_FILE.read_bytes())


def figures_for(sha256: str, board: str) -> tuple[PeerFigure, ...]:
    """What is recorded for a model file on a board; the least instructions first."""
    document = _document()
    model = document.models.get(sha256)
    found = [f for f in document.figures if f.model == model and f.board == board]
    return tuple(sorted(found, key=lambda figure: figure.instructions))


def provenance(figure: PeerFigure) -> str:
    """Where a figure comes from, as a sentence or two."""
    return _document().sources[figure.source]
