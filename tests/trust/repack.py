"""Packages as somebody else could have made them: other files, and metadata that agrees."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

BOARD = "crtexport/board.json"
METADATA = "metadata.json"

Json = dict[str, Any]
Place = tuple[str | int, ...]


def repacked(
    package: Path, to: Path, *, files: Mapping[str, bytes] | None = None,
    metadata: Callable[[Json], None] = lambda _: None,
) -> Path:
    """Writes ``package`` to ``to`` with other ``files``, whose hashes the metadata has, after
    ``metadata`` changed that."""
    with tarfile.open(package) as tar:
        members = {
            m.name.removeprefix("./"): tar.extractfile(m).read()  # type: ignore[union-attr]
            for m in tar.getmembers() if m.isfile()
        }
    members |= files or {}
    data = json.loads(members[METADATA])
    for name, content in (files or {}).items():
        digest = hashlib.sha256(content).hexdigest()
        data["crtexport"]["members"][name] = {"sha256": digest, "bytes": len(content)}
    metadata(data)
    members[METADATA] = json.dumps(data).encode()
    with tarfile.open(to, "w") as tar:
        for name, content in sorted(members.items()):
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return to


def board_of(package: Path) -> Json:
    """The board in a package."""
    with tarfile.open(package) as tar:
        stream = tar.extractfile(f"./{BOARD}")
        assert stream is not None
        found: Json = json.loads(stream.read())
        return found


def with_board(package: Path, to: Path, change: Callable[[Json], None]) -> Path:
    """``package`` with another board in it."""
    data = board_of(package)
    change(data)
    return repacked(package, to, files={BOARD: json.dumps(data).encode()})


def texts(data: object, place: Place = ()) -> Iterator[Place]:
    """Returns the places of texts in JSON data, keys of mappings not among them."""
    if isinstance(data, str):
        yield place
    inside = data.items() if isinstance(data, dict) else enumerate(
        data if isinstance(data, list) else ()
    )
    for key, value in inside:
        yield from texts(value, (*place, key))


def put(data: Any, place: Place, value: object) -> None:
    """Replaces what stands at a place."""
    for key in place[:-1]:
        data = data[key]
    data[place[-1]] = value
