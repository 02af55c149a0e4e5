"""A headless browser, which says what a page looks like there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers import unavailable

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_LOOK = """
<script>
const errors = [];
window.onerror = message => errors.push(String(message));
window.onload = () => {
  const boxes = svg => [...svg.querySelectorAll("text")].map(
    text => [text.textContent, text.getBoundingClientRect()]);
  const overlaps = [], outside = [], cut = [];
  for (const svg of document.querySelectorAll("svg")) {
    const all = boxes(svg), whole = svg.getBoundingClientRect();
    all.forEach(([words, a], i) => {
      if (a.left < whole.left - 1 || a.right > whole.right + 1 || a.top < whole.top - 2
          || a.bottom > whole.bottom + 2) outside.push(words);
      for (const [others, b] of all.slice(i + 1))
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2
            && b.top < a.bottom - 2) overlaps.push(words + " | " + others);
    });
  }
  const rows = [...document.querySelectorAll(".network tbody tr")];
  const uneven = rows.filter(row => Math.abs(row.getBoundingClientRect().height - 30) > 0.5)
    .map(row => row.textContent);
  for (const cell of document.querySelectorAll("section, td, th, li, dd, h1, h3, p"))
    if (cell.scrollWidth > cell.clientWidth + 1 && !cell.classList.contains("name"))
      cut.push(cell.textContent);
  const found = {
    errors, overlaps, outside, cut, uneven, texts: document.querySelectorAll("svg text").length,
    wide: document.documentElement.scrollWidth - innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    elements: [...new Set([...document.querySelectorAll("*")].map(e => e.localName))],
  };
  document.body.textContent = "FOUND" + JSON.stringify(found) + "END";
};
</script>
"""


def browser() -> str:
    """Returns the program; without one see :func:`tests.helpers.unavailable`."""
    found = [path for name in _NAMES if (path := shutil.which(name)) is not None]
    if not found:
        unavailable("chromium", "chromium is not installed")
    return found[0]


def look(page: Path, *, dark: bool = False, width: int = 1200) -> dict[str, Any]:
    """Returns what a script finds in a copy of a page, whose policy would forbid it: errors, labels
    that overlap, leave their picture or are cut off, and rows of a height between which edges of
    the network would have gaps."""
    text = page.read_text(encoding="utf-8")
    assert _POLICY in text
    copy = page.with_suffix(".copy.html")
    copy.write_text(text.replace(_POLICY, "", 1).replace("<head>", "<head>" + _LOOK, 1))
    said = _run(copy, "--dump-dom", dark=dark, width=width).stdout
    begin, end = said.rindex("FOUND{") + 5, said.rindex("}END") + 1
    words = said[begin:end]
    for escaped, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        words = words.replace(escaped, character)
    found: dict[str, Any] = json.loads(words)
    return found


def screenshot(page: Path, picture: Path, *, dark: bool = False) -> list[str]:
    """Writes a PNG of a page as it is; returns what the browser's console says of it."""
    done = _run(page, f"--screenshot={picture}", "--enable-logging=stderr", dark=dark, width=1200)
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def _run(
    page: Path, *options: str, dark: bool, width: int
) -> subprocess.CompletedProcess[str]:
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    return subprocess.run(
        # Without its sandbox, which containers don't allow: the page is our own.
        [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={page.parent / 'profile'}", f"--window-size={width},4000", *scheme,
         *options, page.as_uri()],
        capture_output=True, text=True, check=True, timeout=240,
    )
