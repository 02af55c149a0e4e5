"""The code blocks of the documentation, and what its source says of running them.

A comment in front of a block tells what a reader needn't see:

    <!-- not run: why it can't be -->        the block is shown, not executed
    <!-- test                                 keys are those of the block's runner
    exit: 3
    -->

``files`` is a key of any comment: the files that lie in the page's folder from the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml
from markdown_it import MarkdownIt
from msgspec import Struct

from tests.helpers import ROOT

_COMMENT = re.compile(r"<!--\s*(not run:|test\b)(.*?)-->", re.DOTALL)


class Block(Struct, frozen=True):
    """A code block. ``line`` is that of its first line of text, counted from 1; ``reason`` says why
    it isn't run, None where it is."""

    page: str
    line: int
    language: str
    text: str
    options: dict[str, Any]
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line} ({self.language or 'shell'})"


class Page(Struct, frozen=True):
    """A page of documentation: its path in the checkout, the files that it starts with."""

    path: str
    files: tuple[str, ...]
    blocks: tuple[Block, ...]


def page_paths() -> list[str]:
    """All pages, relative to the checkout."""
    found = [
        *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("boards/**/*.md"),
        *ROOT.glob("zephyr_app/**/*.md"), *ROOT.glob("templates/**/*.md"),
    ]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def read_page(path: str) -> Page:
    """The page that the checkout has at ``path``."""
    return parse(path, (ROOT / path).read_text(encoding="utf-8"))


def parse(path: str, text: str) -> Page:
    """The page with this text. Raises ValueError for comments without meaning."""
    files: list[str] = []
    blocks = []
    options: dict[str, Any] = {}
    reason: str | None = None
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            for kind, body in _comments(token.content):
                if kind == "not run:":
                    reason = body.strip()
                    if not reason:
                        raise ValueError(f"{path}: a block that isn't run needs a reason")
                else:
                    keys = yaml.safe_load(body) or {}
                    files += str(keys.pop("files", "")).split()
                    options |= keys
        elif token.type in ("fence", "code_block"):
            line = (token.map or [0])[0] + (2 if token.type == "fence" else 1)
            blocks.append(Block(path, line, token.info.strip(), token.content, options, reason))
            options, reason = {}, None
    if options or reason is not None:
        raise ValueError(f"{path}: a comment stands before no block: {options or reason}")
    return Page(path, tuple(files), tuple(blocks))


def _comments(html: str) -> Iterator[tuple[str, str]]:
    for found in _COMMENT.finditer(html):
        yield found[1], found[2]
