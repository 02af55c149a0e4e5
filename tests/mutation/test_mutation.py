"""The tool that makes mistakes: they are small, repeatable, away from the checkout, and seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import ROOT
from tests.mutation.__main__ import SEEN, SURVIVED, UNREACHED, tried
from tests.mutation.changes import changes, drawn
from tests.mutation.reach import Reach, Test, files_for, recorded
from tests.mutation.recorder import spans
from tests.mutation.tree import Tree

SOURCE = b'''\
"""What is said of it stays: 1 < 2."""


def clamp(value: int, low: int, high: int) -> int:
    """No more than ``high``."""
    if value < low and low != high:
        return low
    return min(value, high)


def never(value: int) -> int:
    if value > 3:
        raise ValueError(f"{value + 1} is too much")
    return value
'''

TESTS = '''\
import pytest

from crtexport.part import clamp


@pytest.mark.parametrize("value", [2, 5])
def test_clamp(value):
    assert clamp(value, 3, 4) == (3 if value < 3 else 4)


def test_fails_anyway():
    assert clamp(1, 2, 3) == 7
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project of one module and its tests."""
    root = tmp_path / "checkout"
    for name, content in {
        "crtexport/__init__.py": b"", "crtexport/part/__init__.py": SOURCE,
        "crtexport/part/lonely.py": b"COUNT = 3\n",
        "tests/part/test_part.py": TESTS.encode(), "tests/other/test_other.py": b"",
        "pyproject.toml": b'[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n',
        "tests/mutation/recorder.py": (ROOT / "tests/mutation/recorder.py").read_bytes(),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def of_kind(kind: str) -> list[str]:
    """The lines that the changes of a kind give."""
    return [
        change.of(SOURCE).decode().splitlines()[change.line - 1].strip()
        for change in changes("part.py", SOURCE) if change.kind == kind
    ]


def test_a_change_replaces_one_piece_of_the_text() -> None:
    assert of_kind("<= for <") == ["if value <= low and low != high:"]
    assert of_kind("== for !=") == ["if value < low and low == high:"]
    assert of_kind("or for and") == ["if ((value < low) or (low != high)):"]
    assert of_kind("condition dropped") == [
        "if ((low != high)):", "if ((value < low)):"
    ]
    assert of_kind("if False") == ["if False:", "if False:"]
    assert of_kind("max for min") == ["return max(value, high)"]
    assert of_kind("swapped") == ["return min(high, value)"]
    assert of_kind("by one") == ["if value > 2:", "if value > 4:"]
    assert "return 0" in of_kind("constant returned")


def test_texts_for_readers_stay() -> None:
    for change in changes("part.py", SOURCE):
        changed = change.of(SOURCE).decode()
        assert "1 < 2." in changed
        assert "value + 1} is too much" in changed
        assert changed != SOURCE.decode()


def test_the_same_seed_draws_the_same_changes(checkout: Path) -> None:
    first = drawn(checkout, ["part"], 12, 1)
    assert len(set(first)) == 12
    assert drawn(checkout, ["part"], 12, 1) == first
    assert drawn(checkout, ["part"], 12, 2) != first
    assert drawn(checkout, ["part"], 5, 1) == first[:5]
    # Families take turns: a program has more numbers than conditions.
    assert len({change.family for change in first[:5]}) == 5


def test_survivors_are_told_from_what_tests_see(checkout: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    said: list[str] = []
    files = files_for(checkout, ["tests/part", "tests/part/test_part.py", "tests/mutation"])
    assert files == ["tests/part/test_part.py"]
    assert files_for(checkout, ["tests"]) == ["tests/other/test_other.py", *files]
    reach = recorded(checkout, tmp_path / "cache", files, said.append)
    assert len(said) == 1
    # A test that fails without any change says nothing.
    assert {test.function for test in reach.tests} == {"tests/part/test_part.py::test_clamp"}
    assert len(reach.tests) == 2
    tree = Tree(checkout, tmp_path / "work")
    results = {
        change.kind: tried(tree, change, reach, 60)[0]
        for path in ("crtexport/part/__init__.py", "crtexport/part/lonely.py")
        for change in changes(path, (checkout / path).read_bytes())
        if change.kind in ("max for min", "<= for <") or path.endswith("lonely.py")
    }
    assert results == {"<= for <": SURVIVED, "max for min": SEEN, "by one": UNREACHED}
    assert {p: p.read_bytes() for p in checkout.rglob("*") if p.is_file()} == before
    # What was recorded once is there the next time.
    recorded(checkout, tmp_path / "cache", files, said.append)
    assert len(said) == 1


def test_a_package_that_breaks_when_it_is_imported_is_seen(checkout: Path, tmp_path: Path) -> None:
    # pytest ends otherwise where conftest.py is what can't be imported.
    (checkout / "tests/conftest.py").write_text("import crtexport.part\n")
    path = "crtexport/part/__init__.py"
    (checkout / path).write_bytes(SOURCE + b"if clamp(1, 2, 3) == 3:\n    raise ValueError\n")
    reach = recorded(checkout, tmp_path / "cache", ["tests/part/test_part.py"], lambda _: None)
    tree = Tree(checkout, tmp_path / "work")
    results = {
        change.kind: tried(tree, change, reach, 60)
        for change in changes(path, (checkout / path).read_bytes()) if change.kind == "!= for =="
    }
    assert [result for result, _ in results.values()] == [SEEN]
    # What fails without the change, too, is no verdict on it.
    (tree.root / "tests/conftest.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(RuntimeError, match="nothing_of_this_name"):
        tried(tree, changes(path, (checkout / path).read_bytes())[0], reach, 60)


SHARED = '''\
import pytest

from crtexport.part import clamp, never


@pytest.fixture(scope="module")
def shared():
    return never(2)


def test_first(shared):
    assert shared == 2


def test_second(shared):
    assert clamp(shared, 0, 4) == 2


def test_other():
    assert clamp(1, 2, 3) == 2
'''


def test_tests_reach_what_their_fixtures_share(checkout: Path, tmp_path: Path) -> None:
    (checkout / "tests/part/test_shared.py").write_text(SHARED)
    reach = recorded(checkout, tmp_path / "cache", ["tests/part/test_shared.py"], lambda _: None)
    reached = {test.name.split("_")[-1]: {name for _, name in test.reached} for test in reach.tests}
    assert reached == {
        "first": {"never:0"}, "second": {"never:0", "clamp:0"}, "other": {"clamp:0", "clamp:1"},
    }


def test_tests_that_reach_the_innermost_block_come_first(checkout: Path) -> None:
    path = "crtexport/part/__init__.py"
    names = list(spans(SOURCE))
    assert names == ["clamp:0", "clamp:1", "never:0", "never:1"]
    tests = [
        Test(f"tests/{folder}/test_x.py::test_{name}", seconds, frozenset({(path, block)}))
        for folder, name, seconds, block in (
            ("other", "quick", 0.1, "clamp:1"), ("part", "a[1]", 1.0, "clamp:1"),
            ("part", "a[2]", 2.0, "clamp:1"), ("part", "a[3]", 3.0, "clamp:1"),
            ("part", "b", 4.0, "clamp:1"), ("part", "outside", 0.1, "clamp:0"),
            ("part", "long", 90.0, "clamp:1"),
        )
    ]
    found = Reach(checkout, tests).belonging(path, 7, 60)
    assert [test.name.split("_")[-1] for test in found] == ["a[1]", "b", "quick", "a[2]", "a[3]"]
    (outside,) = Reach(checkout, tests[5:6]).belonging(path, 7, 60)
    assert outside.function.endswith("outside")
