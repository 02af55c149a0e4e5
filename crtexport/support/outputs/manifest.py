"""The list of the files in a folder that crtexport wrote, with their digests."""

from __future__ import annotations

from msgspec import DecodeError, Struct, json

from crtexport.support.errors import CrtExportError
from crtexport.support.outputs.tree import Tree

NAME = ".crtexport-manifest.json"
_FORMAT = "crtexport-manifest"


class ManifestEntry(Struct, frozen=True):
    """``part``: the writer, of all that may write into one folder. ``sha256``: digest of the
    content; None while a tool makes it."""

    part: str
    sha256: str | None = None


class Manifest(Struct, frozen=True):
    """Files and folders by their names below the folder that the manifest is in."""

    format: str = _FORMAT
    version: int = 1
    files: dict[str, ManifestEntry] = {}
    folders: dict[str, str] = {}

    def dump(self) -> bytes:
        """Returns the text of the file, the same for the same entries."""
        return json.format(json.encode(self, order="deterministic"), indent=1) + b"\n"


def read(tree: Tree) -> Manifest:
    """Returns the manifest of a folder; an empty one where there is none. Raises CrtExportError for
    one that is damaged or lists names outside of the folder."""
    if not tree.kind(NAME):
        return Manifest()
    try:
        with tree.open(NAME) as stream:
            found = json.decode(stream.read(), type=Manifest)
    except (OSError, DecodeError) as error:
        raise _unusable(tree, f"can't be read ({error})") from error
    if (found.format, found.version) != (_FORMAT, 1):
        raise _unusable(tree, "is of another version of crtexport")
    if not all(map(inside, (*found.files, *found.folders))):
        raise _unusable(tree, "lists names that lead out of the folder")
    return found


def inside(name: str) -> bool:
    """Returns whether ``name`` is a path below a folder, in its shortest form."""
    return not {"", ".", ".."} & {*name.split("/")} and "\0" not in name


def _unusable(tree: Tree, why: str) -> CrtExportError:
    return CrtExportError(
        f"the manifest of this folder {why}", location=str(tree.path / NAME),
        hint="name another folder; without the list, no file here is taken for one of ours",
    )
