"""Finds the tests that belong to a line of the package: those that reach it, as recorded."""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.mutation.recorder import PROBE, Block, Span, instrumented, spans
from tests.mutation.tree import Tree

NEVER = {"bench", "docs", "large", "mutation", "zephyr"}
"""Folders of tests that look at other things than what a module means, or that take too long."""

FILE_SECONDS = 600
"""The time in which a file of tests is recorded."""

FEW = 3
"""If fewer tests reach a line, others of its file are taken, too: what is computed once and
kept is reached by the first test alone."""


@dataclass(frozen=True)
class Test:
    """A test that passes, and the blocks that it reaches."""

    __test__ = False

    name: str
    seconds: float
    reached: frozenset[Block]

    @property
    def function(self) -> str:
        """The name without parameters."""
        return self.name.split("[")[0]


class Reach:
    """The recorded tests, and the blocks of the files of ``root``."""

    def __init__(self, root: Path, tests: Sequence[Test]) -> None:
        self.root, self.tests = root, tests
        self._spans: dict[str, dict[str, Span]] = {}

    def belonging(self, path: str, line: int, seconds: float) -> list[Test]:
        """Tests for a line, as many as take ``seconds`` together: first those that reach its
        innermost block, one of each function before the second of any, those of the file's own
        folder first; where few do, those that reach anything of the file."""
        if path not in self._spans:
            self._spans[path] = spans((self.root / path).read_bytes())
        inside = [
            (span.last - span.first, name) for name, span in self._spans[path].items()
            if span.first <= line <= span.last
        ]
        found = self._spread(path, {(path, min(inside)[1])}) if inside else []
        if len(found) < FEW:
            found += self._spread(path, {(path, name) for name in self._spans[path]})
        return _within(dict.fromkeys(found), seconds)

    def _spread(self, path: str, blocks: set[Block]) -> list[Test]:
        own = f"tests/{path.split('/')[1]}/"
        turns: dict[str, count[int]] = {}
        ranked = []
        for test in sorted(self.tests, key=lambda test: (test.seconds, test.name)):
            if not blocks.isdisjoint(test.reached):
                turn = next(turns.setdefault(test.function, count()))
                away = not test.name.startswith(own)
                ranked.append(((turn.bit_length(), away, test.seconds, test.name), test))
        return [test for _, test in sorted(ranked, key=lambda one: one[0])]


def _within(tests: Iterable[Test], seconds: float) -> list[Test]:
    taken: list[Test] = []
    for test in tests:
        if test.seconds <= seconds:
            taken.append(test)
            seconds -= test.seconds
    return taken


def files_for(root: Path, tests: Sequence[str]) -> list[str]:
    """The files of tests among ``tests``, files and folders of the checkout."""
    found = {
        file.relative_to(root)
        for path in tests
        for file in ([root / path] if path.endswith(".py") else (root / path).rglob("test_*.py"))
    }
    # Tests that stand beside the folders look at the sources as texts.
    return sorted(
        file.as_posix() for file in found if len(file.parts) > 2 and file.parts[1] not in NEVER
    )


def recorded(
    root: Path, cache: Path, files: Sequence[str], say: Callable[[str], None],
    seconds: float = FILE_SECONDS,
) -> Reach:
    """Returns what the tests of ``files`` reach. Those are run whose file isn't as it was when
    ``cache`` got what they reach; of a file that is, what they reached is kept though the package
    changed."""
    missing = [file for file in files if not _entry(root, cache, file).exists()]
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="crtexport-mutation-") as folder:
            tree = Tree(root, Path(folder))
            blocks: list[Block] = []
            for source in sorted((tree.root / "crtexport").rglob("*.py")):
                path = source.relative_to(tree.root).as_posix()
                tree.write(path, instrumented(path, source.read_bytes(), blocks))
            (tree.root / "crtexport" / "_reach.py").write_text(PROBE, encoding="ascii")
            for number, file in enumerate(missing, 1):
                say(f"recording what tests reach, {number} of {len(missing)}: {file}")
                _record(tree, file, blocks, _entry(root, cache, file), seconds)
    tests = [
        Test(row["test"], row["seconds"], frozenset((path, name) for path, name in row["blocks"]))
        for file in files
        for row in _rows(gzip.decompress(_entry(root, cache, file).read_bytes()))
        if row["passed"]
    ]
    return Reach(root, tests)


def _entry(root: Path, cache: Path, file: str) -> Path:
    content = hashlib.sha256((root / file).read_bytes()).hexdigest()[:16]
    return cache / f"{file.replace('/', '.')}.{content}.gz"


def _rows(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def _record(
    tree: Tree, file: str, blocks: Sequence[Block], entry: Path, seconds: float
) -> None:
    """Runs a file of tests and keeps what each of them reached."""
    output = tree.root.parent / "rows"
    output.write_bytes(b"")
    environment = {
        "CRTEXPORT_REACH_OUTPUT": str(output), "CRTEXPORT_REACH_LOG": f"{output}.log",
    }
    tree.pytest(["-p", "tests.mutation.recorder", file], seconds, environment)
    rows = _rows(output.read_bytes())
    for row in rows:
        row["blocks"] = [blocks[number] for number in row["blocks"]]
    content = "\n".join(json.dumps(row) for row in rows)
    entry.write_bytes(gzip.compress(content.encode()))
