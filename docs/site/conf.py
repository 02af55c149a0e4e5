"""The documentation as a site: the pages of the checkout as they are, by Sphinx and MyST.

    sphinx-build -W --keep-going -c docs/site . build/site

docs/README.md is its first page, and the lists there are its contents, so that a page is entered
once. Links work on a forge and here, as folders are those of the checkout.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from crtexport.version import __version__  # noqa: E402  (needs the path above)

project = "crtexport"
author = "The crtexport authors"
release = version = __version__
copyright = author  # noqa: A001  (Sphinx's name)

extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/README"
include_patterns = [
    "README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "docs/examples/*/*.md",
    "boards/*.md", "zephyr_app/*.md",
]
exclude_patterns = ["docs/site", "**/.*"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "monokai"

html_theme = "furo"
html_title = f"crtexport {release}"
html_copy_source = False
html_show_sphinx = False
html_extra_path = ["root"]  # a first page where servers look for one
copybutton_exclude = ".linenos, .gp"

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s:#]+)\)")
_PAGE = re.compile(r"^\* \[[^\]]+\]\((?!https?:)([^)#]+)\.md\)", re.MULTILINE)


def contents(text: str) -> str:
    """Returns the table of contents that the lists of a page say, as MyST has it."""
    titles = _SECTION.split(text)[1:]
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "".join(
            f"/{(Path('docs') / page).as_posix()}\n".replace("docs/../", "")
            for page in _PAGE.findall(body)
        ) + "```\n"
        for title, body in zip(titles[::2], titles[1::2], strict=True) if _PAGE.search(body)
    )


def without_folders(text: str, page: Path) -> str:
    """Returns a page whose links to folders, which a forge shows and a site doesn't, are text."""
    def link(found: re.Match[str]) -> str:
        return found[1] if (page.parent / found[2]).is_dir() else found[0]

    return _LINK.sub(link, text)


def setup(app: Any) -> None:
    """Changes pages a little while they are read."""
    def read(_app: Any, name: str, source: list[str]) -> None:
        source[0] = without_folders(source[0], ROOT / f"{name}.md")
        if name == root_doc:
            source[0] += contents(source[0])

    app.connect("source-read", read)
