"""Writes many files into a folder that may hold others: all or none, never over the user's own.

A manifest in the folder lists what is ours. New files are written beside their places and then take
these; what they replace is kept until the last one has. A process that is killed meanwhile leaves a
journal, by which the next one that writes there puts everything back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from crtexport.support.errors import CrtExportError
from crtexport.support.outputs import manifest
from crtexport.support.outputs.manifest import Manifest, ManifestEntry
from crtexport.support.outputs.signals import held
from crtexport.support.outputs.single import lock, remove_leftovers, temporary_name
from crtexport.support.outputs.tree import FOLDER, Tree, ancestors

Content = Callable[[], Iterable[bytes]]
"""Yields a file's bytes, anew with each call."""

_STAGING = ".crtexport-staging"
_JOURNAL = f"{_STAGING}/journal.json"
_SHOWN = 5


class Wanted(Struct, frozen=True):
    """The contents that ``part`` shall have in a folder: ``files`` and empty ``folders``; ``made``:
    names of files and ``own_folders`` that tools fill afterwards."""

    part: str
    files: Mapping[str, Content]
    folders: Sequence[str] = ()
    made: Sequence[str] = ()
    own_folders: Sequence[str] = ()


class _Step(Struct, frozen=True):
    """A file that is put in place; ``sha256`` is empty where one is only removed."""

    name: str
    sha256: str


class _Journal(Struct, frozen=True):
    steps: tuple[_Step, ...]
    folders: tuple[str, ...]


class _Plan(Struct, frozen=True):
    """The changes to a folder. ``kept``: unchanged files and their digests; ``gone``: files of ours
    that are no longer wanted."""

    new: tuple[str, ...]
    kept: dict[str, str]
    gone: tuple[str, ...]


def lay_out(folder: Path, contents: Wanted, *, force: bool = False) -> tuple[Path, ...]:
    """Writes files into ``folder``, which is made if need be, and removes those of ours that are no
    longer wanted. Returns the paths, sorted.

    Files that would not change keep their time. Raises CrtExportError, before anything is changed,
    where a file would be replaced that the folder's manifest doesn't list or that was changed since
    (``force`` replaces them), and for symbolic links in the place of folders; OSError where the
    folder can't be written.
    """
    for name in (*contents.files, *contents.made, *contents.own_folders):
        if not manifest.inside(name):
            raise CrtExportError("this name leads out of the folder", location=name)
    with held() as let_through:
        files = {name: _interruptible(content, let_through)
                 for name, content in contents.files.items()}
        contents = replace(contents, files=files)
        if os.path.lexists(folder):
            with _opened(folder) as tree:
                _recover(tree)
                _update(tree, contents, force=force)
        else:
            _make(folder, contents)
    return tuple(sorted(folder / name for name in contents.files))


def settle(folder: Path) -> None:
    """Records the digests of files that tools have written meanwhile. Raises as :func:`lay_out`."""
    with held(), _opened(folder) as tree:
        known = manifest.read(tree)
        files = {}
        for name, entry in known.files.items():
            if entry.sha256 is not None:
                files[name] = entry
            elif tree.kind(name) == "file":
                files[name] = ManifestEntry(entry.part, tree.digest(name))
        content = replace(known, files=files).dump()
        _switch(tree, {manifest.NAME: lambda: (content,)}, (), ())


def _interruptible(content: Content, let_through: Callable[[], None]) -> Content:
    """Returns the same content; before each piece, a signal may end the program."""

    def pieces() -> Iterator[bytes]:
        for piece in content():
            let_through()
            yield piece

    return pieces


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Tree]:
    """Opens the folder while no other process writes into it."""
    descriptor = os.open(folder, FOLDER)
    try:
        if not lock(descriptor):
            raise CrtExportError("another process is writing into this folder just now",
                                 location=str(folder), hint="wait for it, then try again")
        yield Tree(folder, descriptor)
    finally:
        os.close(descriptor)


def _make(folder: Path, contents: Wanted) -> None:
    """Makes a new folder, which appears with all its contents at once."""
    made = [path for path in (folder.parent, *folder.parent.parents) if not path.exists()]
    done = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        parent = os.open(folder.parent, FOLDER)
        try:
            remove_leftovers(parent)
            _fill_and_name(parent, folder, contents)
        finally:
            os.close(parent)
        done = True
    finally:
        if not done:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()


def _fill_and_name(parent: int, folder: Path, contents: Wanted) -> None:
    temporary = temporary_name()
    try:
        os.mkdir(temporary, dir_fd=parent)
        with _opened(folder.parent / temporary) as tree:
            _update(tree, contents, force=False)
            os.rename(temporary, folder.name, src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(temporary, dir_fd=parent)


def _update(tree: Tree, contents: Wanted, *, force: bool) -> None:
    recorded = manifest.read(tree)
    plan = _planned(tree, contents, recorded, force=force)
    digests = dict(plan.kept)
    content = _listed(recorded, contents, digests).dump()
    missing = [name for name in contents.folders if not tree.kind(name)]
    if not (plan.new or plan.gone or missing) and content == recorded.dump():
        return
    files = {name: contents.files[name] for name in plan.new}

    def listing() -> Iterable[bytes]:  # once the others are written, and their digests known
        return (_listed(recorded, contents, digests).dump(),)

    _switch(tree, {**files, manifest.NAME: listing}, plan.gone, contents.folders, digests)
    for name in plan.gone:
        for outer in reversed(ancestors(name)):
            if outer not in contents.folders:
                tree.remove_folder(outer)


def _planned(tree: Tree, contents: Wanted, recorded: Manifest, *, force: bool) -> _Plan:
    """Returns the changes to make. Raises CrtExportError where one of the user's files is in the
    way."""
    new, kept, foreign = [], {}, []
    for name, content in contents.files.items():
        there, entry = tree.kind(name), recorded.files.get(name)
        if there in ("folder", "other"):
            raise CrtExportError("a file belongs here", location=str(tree.path / name))
        if there == "file":
            digest = tree.digest(name)
            if digest == _digest(content):
                if entry is not None:  # else it is the user's, and stays so
                    kept[name] = digest
                continue
            if entry is None or entry.sha256 not in (digest, None):
                foreign.append(name)
        elif there == "link":
            foreign.append(name)
        new.append(name)
    foreign += [name for name in contents.made if not _ours(tree, recorded, name)]
    foreign += [name for name in contents.own_folders
                if tree.kind(f"{name}/.") and name not in recorded.folders]
    if foreign and not force:
        raise _refusal(tree, foreign)
    gone = [
        name for name, entry in recorded.files.items()
        if entry.part == contents.part and entry.sha256 is not None
        and name not in contents.files and name not in contents.made
        and tree.kind(name) == "file" and tree.digest(name) == entry.sha256
    ]
    return _Plan(tuple(new), kept, tuple(gone))


def _ours(tree: Tree, recorded: Manifest, name: str) -> bool:
    """Returns whether a tool may make this file: nothing is there, or what one made before."""
    there, entry = tree.kind(name), recorded.files.get(name)
    if there != "file" or entry is None:
        return not there
    return entry.sha256 is None or tree.digest(name) == entry.sha256


def _refusal(tree: Tree, names: Sequence[str]) -> CrtExportError:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return CrtExportError(
        "files that crtexport didn't write, or that were changed since, would be replaced: "
        + ", ".join(names[:_SHOWN]) + more,
        location=str(tree.path),
        hint="name another folder or move them away; --force, in Python force=True, replaces them",
    )


def _listed(recorded: Manifest, contents: Wanted, digests: Mapping[str, str]) -> Manifest:
    """Returns the manifest of the folder after the changes."""
    kept = {
        name: entry for name, entry in recorded.files.items()
        if entry.part != contents.part or (entry.sha256 is None and name not in contents.files)
    }
    ours = {name: ManifestEntry(contents.part, digest) for name, digest in digests.items()}
    made = {name: ManifestEntry(contents.part) for name in contents.made}
    folders = recorded.folders | dict.fromkeys(contents.own_folders, contents.part)
    return Manifest(files={**kept, **ours, **made}, folders=folders)


def _digest(content: Content) -> str:
    digest = hashlib.sha256()
    for piece in content():
        digest.update(piece)
    return digest.hexdigest()


# ---- the switch, and the way back ------------------------------------------------------------


def _switch(
    tree: Tree, files: Mapping[str, Content], removed: Sequence[str], folders: Sequence[str],
    digests: dict[str, str] | None = None,
) -> None:
    """Writes ``files``, whose ``digests`` it notes, then puts all in place and removes those in
    ``removed``; restores everything where that fails."""
    digests = {} if digests is None else digests
    try:
        for name in (_STAGING, f"{_STAGING}/new", f"{_STAGING}/old"):
            tree.make_folder(name)
        steps = []
        for number, (name, content) in enumerate(files.items()):
            digest = _written(tree, f"{_STAGING}/new/{number}", content)
            steps.append(_Step(name, digest))
            if name != manifest.NAME:
                digests[name] = digest
        steps += [_Step(name, "") for name in removed]
        inner = [outer for name in files for outer in ancestors(name)]
        inner += [outer for name in folders for outer in (*ancestors(name), name)]
        missing = tuple(dict.fromkeys(outer for outer in inner if not tree.kind(outer)))
        journal = json.encode(_Journal(tuple(steps), missing))
        _written(tree, f"{_STAGING}/begun", lambda: (journal,))
        tree.move(f"{_STAGING}/begun", _JOURNAL)
        for name in dict.fromkeys(inner):
            tree.make_folder(name)
        for number, step in enumerate(steps):
            if tree.kind(step.name):
                tree.move(step.name, f"{_STAGING}/old/{number}")
            if step.sha256:
                tree.move(f"{_STAGING}/new/{number}", step.name)
        tree.remove(_JOURNAL)  # from here on, all is as wanted
    finally:
        _recover(tree)


def _written(tree: Tree, name: str, content: Content) -> str:
    digest = hashlib.sha256()
    with tree.create(name) as stream:
        for piece in content():
            digest.update(piece)
            stream.write(piece)
    return digest.hexdigest()


def _recover(tree: Tree) -> None:
    """Undoes a switch that was interrupted: restores the files that it removed and deletes those
    that it left behind."""
    if not tree.kind(_STAGING):
        return
    if tree.kind(_JOURNAL):
        try:
            with tree.open(_JOURNAL) as stream:
                journal = json.decode(stream.read(), type=_Journal)
        except DecodeError as error:
            raise CrtExportError(
                f"leftovers of an earlier run can't be read ({error})",
                location=str(tree.path / _JOURNAL),
            ) from error
        if not all(manifest.inside(name) for name in (
            *(step.name for step in journal.steps), *journal.folders
        )):
            raise CrtExportError("this leads out of the folder", location=str(tree.path / _JOURNAL))
        for number, step in reversed([*enumerate(journal.steps)]):
            _put_back(tree, number, step)
        for name in reversed(journal.folders):
            tree.remove_folder(name)
    tree.remove_all(_STAGING)


def _put_back(tree: Tree, number: int, step: _Step) -> None:
    """Undoes a step, however far it came; files that the user changed since stay."""
    old, new = f"{_STAGING}/old/{number}", f"{_STAGING}/new/{number}"
    there = tree.kind(step.name)
    placed = bool(step.sha256) and not tree.kind(new)
    if there and not (placed and there == "file" and tree.digest(step.name) == step.sha256):
        return
    if tree.kind(old):
        tree.move(old, step.name)
    elif there:
        tree.remove(step.name)
