"""Records which blocks of the package each test reaches: a plugin of pytest, and what it needs.

``instrumented`` puts a call at the beginning of each block (the body of a function, a branch, a
loop); that costs a test little, where following each line would make it twice as long.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import random
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROBE = '''\
"""Notes the blocks that are reached; processes that tests start write them to a file."""
import os
_MAIN = int(os.environ.get("CRTEXPORT_REACH_MAIN") or os.getpid())
_LOG = os.environ.get("CRTEXPORT_REACH_LOG")
seen = set()
def add(block):
    if block not in seen:
        seen.add(block)
        if _LOG and os.getpid() != _MAIN:
            with open(_LOG, "a") as log:
                log.write(f"{block}\\n")
'''
"""The module ``crtexport._reach`` of an instrumented package."""

Block = tuple[str, str]
"""(path, name) of a block: the name is the function's, and a number in it."""


class Span(NamedTuple):
    """The lines of a block."""

    first: int
    last: int


def blocks_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    """(name, body) of the blocks within functions; each after those around it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            name = f"{prefix}{child.name}"
            for number, body in enumerate([child.body, *_inner(child)]):
                yield f"{name}:{number}", body
            yield from blocks_of(child, f"{name}.")
        elif isinstance(child, ast.ClassDef):
            yield from blocks_of(child, f"{prefix}{child.name}.")
        else:
            yield from blocks_of(child, prefix)


def _inner(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The bodies within a function, but not those within functions in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            body = getattr(child, name, None)
            if isinstance(body, list) and body:
                yield body
        yield from _inner(child)


def spans(source: bytes) -> dict[str, Span]:
    """The lines of each block of a file."""
    found = {}
    for name, body in blocks_of(ast.parse(source)):
        assert body[-1].end_lineno is not None
        found[name] = Span(body[0].lineno, body[-1].end_lineno)
    return found


def instrumented(path: str, source: bytes, blocks: list[Block]) -> bytes:
    """The source with a call at the beginning of each block; those are added to ``blocks``."""
    tree = ast.parse(source)
    for name, body in list(blocks_of(tree)):
        call = ast.parse(f"__reached__({len(blocks)})").body[0]
        blocks.append((path, name))
        body.insert(_after_docstring(body), call)
    last = max((i for i, s in enumerate(tree.body) if isinstance(s, ast.ImportFrom)
                and s.module == "__future__"), default=_after_docstring(tree.body) - 1)
    tree.body.insert(last + 1, ast.parse("from crtexport._reach import add as __reached__").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def _after_docstring(body: list[ast.stmt]) -> int:
    return 1 if ast.get_docstring(ast.Module(body, [])) is not None else 0


class Recorder:
    """Writes a line for each test: its name, outcome, seconds, and the blocks that it reached."""

    def __init__(self, output: Path, log: Path) -> None:
        self.output, self.log, self.read = output, log, 0
        self.failed = False
        self.shared: dict[tuple[str, str], set[int]] = {}

    def reached(self) -> set[int]:
        """Returns what was reached since the last call, by processes that were started, too."""
        from crtexport import _reach  # type: ignore[attr-defined]

        seen = set(_reach.seen)
        _reach.seen.clear()
        if self.log.exists():
            with self.log.open(encoding="ascii") as log:
                log.seek(self.read)
                seen.update(map(int, log.read().split()))
                self.read = log.tell()
        return seen

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """What several tests share belongs to each of them, not to the first alone."""
        from crtexport import _reach  # type: ignore[attr-defined]

        if request.scope == "function":
            return (yield)
        before = self.reached()
        result = yield
        own = self.reached()
        self.shared[fixturedef.argname, fixturedef.baseid] = own
        _reach.seen.update(before | own)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.reached()
        self.failed, begin = False, time.perf_counter()
        result = yield
        seen = self.reached()
        for (name, place), blocks in self.shared.items():
            if item.nodeid.startswith(place) and name in getattr(item, "fixturenames", ()):
                seen |= blocks
        row = {
            "test": item.nodeid, "passed": not self.failed,
            "seconds": round(time.perf_counter() - begin, 3), "blocks": sorted(seen),
        }
        with self.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return result

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """One of each function before the second of any: a run may be ended before it is done."""
        turns: dict[str, itertools.count[int]] = {}
        order = {
            item: next(turns.setdefault(item.nodeid.split("[")[0], itertools.count()))
            for item in random.Random(0).sample(items, len(items))  # noqa: S311  (repeatable)
        }
        items.sort(key=order.__getitem__)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.outcome != "passed"


def pytest_configure(config: pytest.Config) -> None:
    os.environ["CRTEXPORT_REACH_MAIN"] = str(os.getpid())
    output, log = (Path(os.environ[f"CRTEXPORT_REACH_{what}"]) for what in ("OUTPUT", "LOG"))
    config.pluginmanager.register(Recorder(output, log), "recorder")
