"""Small mistakes made in the package, and which of them its tests see.

``python -m tests.mutation lowering schedules --count 20 --seed 3`` draws 20 changes over these
folders of the package, makes one after the other in a copy of the checkout, and runs the tests that
belong to the changed line until the first of them fails. What survives is shown as a diff: either
nobody could see it (it means the same, or costs something, or looks otherwise), or a test is
missing. ``--list`` shows what would be made; ``--only`` makes some of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers import ROOT
from tests.mutation.changes import Change, drawn
from tests.mutation.reach import Reach, files_for, recorded
from tests.mutation.tree import Tree

SEEN, SURVIVED, UNREACHED = "seen", "survived", "reached by no test"
MISUSED = (3, 4, 5)
"""Exit codes of pytest that say nothing of the package where they come without a change, too: an
error of its own, another command line (or ``conftest.py`` can't be imported), no tests. With any
other, of a crash, too, a test failed."""
MOST_TESTS = 400


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tried(tree: Tree, change: Change, reach: Reach, seconds: float) -> tuple[str, str]:
    """Returns what became of a change, and how."""
    tests = reach.belonging(change.path, change.line, seconds)[:MOST_TESTS]
    if not tests:
        return UNREACHED, ""
    source = (tree.root / change.path).read_bytes()
    names = tree.root.parent / "names"
    names.write_text("".join(f"{test.name}\n" for test in tests), encoding="utf-8")
    tree.write(change.path, change.of(source))
    begin = time.monotonic()
    try:
        # One that takes this much longer than it did may never end.
        code, output = tree.pytest(["-x", "--tb=no", f"@{names}"], 3 * seconds + 30)
    finally:
        tree.write(change.path, source)
    took = f"{time.monotonic() - begin:.0f} s, {len(tests)} tests"
    if code is None:
        return SEEN, f"{took}: they don't end"
    last = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if code in MISUSED:
        if tree.pytest(["--collect-only", f"@{names}"], 3 * seconds + 30)[0] != 0:
            raise RuntimeError(f"pytest ended with {code}:\n{output}")
        return SEEN, f"{took}: the package that the tests import breaks"
    if code != 0:
        return SEEN, f"{took}: {last[-1] if last else 'it breaks'}"
    return SURVIVED, took


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="of the package: lowering")
    parser.add_argument("--count", type=int, default=20, help="how many changes")
    parser.add_argument("--seed", type=int, default=0, help="which ones; same seed, same changes")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of tests for a change, at most"
    )
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", default=["tests"],
        help="files and folders of tests to choose from; all",
    )
    parser.add_argument("--only", type=numbers, help="numbers of changes, separated by commas")
    parser.add_argument("--list", action="store_true", help="show the changes, run nothing")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "build" / "mutation",
        help="folder for what tests reach: recorded once, and again for files of tests that change",
    )
    arguments = parser.parse_args()
    found = drawn(ROOT, arguments.folders, arguments.count, arguments.seed)
    some = arguments.only or range(len(found))
    if arguments.list:
        for number in some:
            say(f"-- {number}\n{found[number].diff((ROOT / found[number].path).read_bytes())}")
        return 0
    reach = recorded(ROOT, arguments.cache, files_for(ROOT, arguments.tests), say)
    results: dict[str, list[int]] = {SEEN: [], SURVIVED: [], UNREACHED: []}
    with tempfile.TemporaryDirectory(prefix="crtexport-mutation-") as folder:
        tree = Tree(ROOT, Path(folder))
        for number in some:
            change = found[number]
            result, how = tried(tree, change, reach, arguments.seconds)
            results[result].append(number)
            say(f"{number}: {change.path}:{change.line} {change.kind}: {result} {how}")
            if result != SEEN:
                say(change.diff((tree.root / change.path).read_bytes()))
    say(", ".join(f"{len(those)} {result}" for result, those in results.items()))
    return 0 if len(results[SEEN]) == len(some) else 1


if __name__ == "__main__":
    sys.exit(main())
