"""The documentation as a site: all pages are in its contents, and it builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import page_paths
from tests.helpers import ROOT, require_module

CONTENTS = ROOT / "docs" / "README.md"
LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def listed() -> list[str]:
    """The pages in the lists of the contents, relative to the checkout."""
    lines = CONTENTS.read_text(encoding="utf-8").splitlines()
    links = [LINK.search(line) for line in lines if line.startswith("* ")]
    paths = [(CONTENTS.parent / link[1]).resolve() for link in links if link]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def test_every_page_is_in_the_contents_once() -> None:
    assert sorted([*listed(), "docs/README.md"]) == page_paths()


@pytest.mark.parametrize("page", page_paths())
def test_links_of_a_page_lead_to_files(page: str) -> None:
    text = CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    folder = (ROOT / page).parent
    assert not [link for link in LINK.findall(text) if not (folder / link).exists()]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for module in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
        require_module(module)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "read"),
         "-c", str(ROOT / "docs" / "site"), str(ROOT), str(tmp_path / "site")],
        capture_output=True, text=True, timeout=600, check=False,
    )
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "site" / "docs" / "README.html").read_text(encoding="utf-8")
    for page in page_paths():
        assert (tmp_path / "site" / page).with_suffix(".html").is_file(), page
    assert 'href="cli.html"' in first
    assert "docs/README.html" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "How it works" in first
