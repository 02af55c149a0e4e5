"""Measurements of other tools for well-known networks, as recorded in ``peers.json``.

A figure belongs to one model file (by its SHA-256) and one board; its provenance says who measured
it, with which versions and how.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from crtexport.firmware.board import Board, load_board

_FILE = Path(__file__).with_name("peers.json")


class PeerFigure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measurement of another tool (``peer``): ``instructions`` and modelled ``cycles`` of one
    inference, ``start_up`` instructions of the initialization before the first; bytes of ``flash``
    (whole program) and ``ram`` (without stack). None: not measured. ``source`` is a key of
    ``peers.json``'s sources."""

    model: str
    board: str
    peer: str
    instructions: int
    cycles: int | None = None
    start_up: int | None = None
    flash: int | None = None
    ram: int | None = None
    source: str


class _PeerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, str]
    models: dict[str, str]
    figures: tuple[PeerFigure, ...]


@functools.cache
def _document() -> _PeerFile:
    return msgspec.json.decode(_FILE.read_bytes(), type=_PeerFile)


def figures_for(sha256: str, board: str) -> tuple[PeerFigure, ...]:
    """Returns the figures for a model file on a board, by rising instructions."""
    document = _document()
    model = document.models.get(sha256)
    found = [f for f in document.figures if f.model == model and f.board == board]
    return tuple(sorted(found, key=lambda figure: figure.instructions))


def figures_like(sha256: str, board: Board) -> tuple[PeerFigure, ...]:
    """Returns the figures for a model file on a board or, if there are none, on another board for
    which crtexport generates the same code."""
    found = figures_for(sha256, board.name)
    for name in sorted({figure.board for figure in _document().figures}):
        if found:
            break
        other = load_board(name).target
        if (other.triple, other.cpu, other.features) == (
            board.target.triple, board.target.cpu, board.target.features
        ):
            found = figures_for(sha256, name)
    return found


def provenance(figure: PeerFigure) -> str:
    """Returns who measured a figure, with which versions and how, as one or two sentences."""
    return _document().sources[figure.source]
