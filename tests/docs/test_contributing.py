"""The files that CONTRIBUTING.md names are enough: its changes are made in a copy, and its commands
run there.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from tests.docs.edits import apply, copy_of_the_checkout
from tests.docs.pages import Block, parse
from tests.helpers import ROOT, require

PAGE = "CONTRIBUTING.md"
TOOLS = ("gcc", "make", "arm-none-eabi-gcc", "qemu-system-arm")


def sections() -> dict[str, list[Block]]:
    """Returns the blocks of each section that shows changes, by its title."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    found: dict[str, list[Block]] = {}
    for part in text.split("\n## How to add something\n")[1].split("\n## ")[0].split("\n### ")[1:]:
        blocks = list(parse(PAGE, part).blocks)
        if any(block.language == "diff" for block in blocks):
            found[part.splitlines()[0]] = blocks
    return found


SECTIONS = sections()

# Runs commands one after the other in one process, which imports everything once: pytest's as
# often as there are commands, and crtexport's.
RUNNER = """
import json, sys, traceback
import pytest
from crtexport.cli.main import main

found = {}
for title, commands in json.loads(sys.argv[1]).items():
    for words in commands:
        print(">", *words, flush=True)
        try:
            run = pytest.main if words[0] == "pytest" else main
            options = ["-q", "-p", "no:cacheprovider"] if words[0] == "pytest" else []
            status = int(run([*words[1:], *options]))
        except BaseException:
            traceback.print_exc()
            status = 1
        if status:
            found.setdefault(title, []).append(f"{' '.join(words)} ended with {status}")
with open("found.json", "w") as file:
    json.dump(found, file)
"""


def commands(blocks: list[Block]) -> list[list[str]]:
    """Returns the words of each command of a section."""
    return [
        shlex.split(line) for block in blocks if not block.language
        for line in block.text.splitlines()
    ]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], str]:
    """Returns the failures of each section, and all output: all changes are in one copy."""
    for tool in TOOLS:
        require(tool)
    checkout = copy_of_the_checkout(tmp_path_factory.mktemp("checkout"))
    for blocks in SECTIONS.values():
        for block in blocks:
            if block.language == "diff":
                apply(block, checkout)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    wanted = {title: commands(blocks) for title, blocks in SECTIONS.items()}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(wanted)], cwd=checkout, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    lint = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "."], cwd=checkout,
        capture_output=True, text=True, check=False,
    )
    assert lint.returncode == 0, lint.stdout
    report = checkout / "found.json"
    assert report.exists(), done.stdout[-4000:]
    return json.loads(report.read_text()), done.stdout


def test_there_is_a_section_for_each_part_that_is_added() -> None:
    assert {*SECTIONS} == {
        "An operator", "An instruction set", "An architecture", "A board", "An importer",
        "An accelerator",
    }


@pytest.mark.qemu
@pytest.mark.parametrize("title", SECTIONS)
def test_what_a_section_tells_to_touch_is_enough(
    title: str, outcome: tuple[dict[str, list[str]], str]
) -> None:
    found, printed = outcome
    assert commands(SECTIONS[title]), "nothing tests it"
    assert title not in found, f"{found[title]}\n{printed[-8000:]}"
