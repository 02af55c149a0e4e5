"""Boards by name or file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from crtexport.firmware import board_reader, native
from crtexport.firmware.board_schema import Board
from crtexport.firmware.board_search import SEARCH_PATH, SUFFIXES, find, folders, shown_as
from crtexport.firmware.budget import Usage, check_budget
from crtexport.support.errors import CrtExportError
from crtexport.support.resources import boards_dir

__all__ = [
    "SEARCH_PATH", "Board", "BoardFamily", "Usage", "board_files", "check_budget", "list_boards",
    "list_families", "load_board", "user_files",
]

_NEAR = 3
"""The most boards that an error about an unknown name suggests."""
_LEAST_LETTERS = 3


def load_board(name_or_path: str | Path) -> Board:
    """Returns a board by its name, or by the path of its YAML file (a text with a ``/`` or that
    ends in .yaml).

    Names are searched in the folders of ``CRTEXPORT_BOARD_PATH``, then among the shipped boards;
    ``native`` is the fastest of these whose code this computer can run. Raises CrtExportError for
    an unknown name (with the most similar ones) and for every error in the file or in one that it
    extends.
    """
    path, explicit = _located(name_or_path)
    board = _loaded(path)
    if board is None:
        raise CrtExportError(
            "this is a family of boards, not a board", location=shown_as(path),
            hint="boards that extend it have memories: `crtexport boards` lists them, `crtexport"
            f" boards new NAME --extends {path.stem}` describes one of your own",
        )
    if not explicit and board.name != path.stem:
        raise CrtExportError(
            f"the board's name is {board.name!r}, but its file {path.name!r}",
            location=(shown_as(path), "name"),
        )
    return board


def board_files(name_or_path: str | Path) -> tuple[Path, ...]:
    """Returns the files that define a board: its own, and those that it extends. Raises
    CrtExportError as :func:`load_board`."""
    path, _ = _located(name_or_path)
    return board_reader.read(path).files


def user_files(board: Board | Path | str) -> tuple[Path, ...]:
    """Returns the user's files that define a board: none for shipped ones. Raises CrtExportError as
    :func:`load_board`."""
    if isinstance(board, Board):
        return ()
    path, _ = _located(board)
    return () if path.parent == boards_dir() else board_files(board)


def list_boards() -> tuple[Board, ...]:
    """Returns every board that can be named, without families, sorted by name."""
    found = [_loaded(path) for path in _named()]
    return tuple(board for board in found if board is not None)


class BoardFamily(Struct, frozen=True):
    """A file that boards extend: ``processor`` is "" where the members have different ones."""

    name: str
    description: str
    processor: str


def list_families() -> tuple[BoardFamily, ...]:
    """Returns every family of boards, by name."""
    return tuple(
        BoardFamily(path.stem, str(merged.data.get("description", "")),
               str(merged.data.get("cpu", {}).get("name", "")))
        for path in _named() if (merged := board_reader.read(path)).abstract
    )


def _named() -> list[Path]:
    """Returns the files of boards and families that are found by their names, sorted by these."""
    paths: dict[str, Path] = {}
    for folder in folders():
        for path in sorted(folder.iterdir()):
            if path.suffix in SUFFIXES:
                paths.setdefault(path.stem, path)
    return [path for _, path in sorted(paths.items())]


def _loaded(path: Path) -> Board | None:
    """Returns the board in a file; None for a family."""
    merged = board_reader.read(path)
    return None if merged.abstract else board_reader.validate(merged, path)


def _located(name_or_path: str | Path) -> tuple[Path, bool]:
    """Returns the board's file, and whether the user named it as a file."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or text.endswith(SUFFIXES):
        return Path(text), True
    found = find(text)
    if found is None and text == native.NAME:
        found = find(native.native_board())
    if found is None:
        raise _unknown(text)
    return found, False


def _unknown(name: str) -> CrtExportError:
    if Path(name).is_file():
        hint = f"a board's file is named with its folder: ./{name}"
    else:
        found = [*dict.fromkeys(_like(name))][:_NEAR]
        meant = f"did you mean {' or '.join(found)}? " if found else ""
        hint = (
            f"{meant}`crtexport boards` lists all boards, `crtexport boards new` describes one of"
            " your own"
        )
    return CrtExportError(f"there is no board {name!r}", hint=hint)


def _like(name: str) -> Iterator[str]:
    """Yields boards to suggest instead of the unknown ``name``: first those whose name or
    description contains it (letters and digits are compared, in lower case), then those with a
    similar name."""
    import difflib  # noqa: PLC0415  (only where a name is wrong)

    boards, word = list_boards(), _letters(name)
    same = [board.name for board in boards if _letters(board.name) == word]
    if same:
        yield from same
        return
    if len(word) >= _LEAST_LETTERS:
        for board in boards:
            if word in _letters(f"{board.name} {board.description}"):
                yield board.name
    near = difflib.get_close_matches(word, [_letters(board.name) for board in boards], n=_NEAR)
    yield from (board.name for board in boards if _letters(board.name) in near)


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
