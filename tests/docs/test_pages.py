"""Every code block of the documentation does what the page says, in order, in a fresh folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Page, page_paths, parse, read_page
from tests.docs.place import Place
from tests.docs.runners import run_page
from tests.helpers import require

TOOLS = (
    "bash", "gcc", "cmake", "make", "arm-none-eabi-gcc", "qemu-system-arm", "qemu-system-i386",
)


@pytest.mark.qemu
@pytest.mark.parametrize("path", page_paths())
def test_the_blocks_of_a_page_work(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = read_page(path)
    if not page.blocks:
        return
    for tool in TOOLS:
        require(tool)
    run_page(page, Place(tmp_path, monkeypatch))


def page(text: str) -> Page:
    return parse("page.md", text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\nfalse\n```", r"page.md:2 \(shell\) ended with 1"),
        ("```\nfalse | true\n```", "ended with 1"),
        ("```\ncrtexport nothing.tflite\n```", "there is no such file"),
        ("<!-- test\nexit: 3\n-->\n```sh\nexit 2\n```", "ended with 2 instead of 3"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2\n```", "AssertionError"),
        ("```c\nint f(void) { return 1.5; }\n```", "conversion"),
        ("```yaml\nname: 1\n```", "name"),
        ("```json\n{\"format\": 1}\n```", "format"),
        ("```cmake\nmessage(FATAL_ERROR \"no\")\n```", "no"),
        ("```brainfuck\n+\n```", "nothing runs a block of brainfuck"),
        ("    true\n    false\n", "page.md:1"),
        ("```\ntrue\n```\n<!-- test\nfrobnicate: 1\n-->\n```\ntrue\n```", "frobnicate"),
    ],
)
def test_a_block_that_is_wrong_is_noticed(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pytest.fail.Exception, match=problem):
        run_page(page(text), Place(tmp_path, monkeypatch))


@pytest.mark.parametrize(
    "text", ["<!-- not run: -->\n```\ntrue\n```", "<!-- not run: it is a picture -->\n\nNo block."]
)
def test_what_is_not_run_has_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"page\.md"):
        page(text)


def test_blocks_in_lists_are_found_with_their_lines() -> None:
    found = page(
        "1. A\n\n   <!-- not run: no -->\n   ```c\n   x\n   ```\n\n"
        "2. B\n\n   ```\n   y\n   ```"
    )
    assert [(b.line, b.language, b.text, b.reason) for b in found.blocks] == [
        (5, "c", "x\n", "no"), (11, "", "y\n", None),
    ]
