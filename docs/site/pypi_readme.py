"""The README as PyPI shows it, made while a distribution is built.

PyPI has no files beside it, so links to files of the checkout become links to the repository that
``[project.urls]`` calls Source; without one they become plain text, as a link that leads nowhere
is worse than none. Comments, which tell tests how to run a block, are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?://|#)([^)\s]+)\)")


def for_pypi(text: str, source: str | None) -> str:
    """Returns the README without comments, with links into the repository at ``source``."""
    def link(found: re.Match[str]) -> str:
        title, target = found[1], found[2]
        return f"[{title}]({source.rstrip('/')}/blob/HEAD/{target})" if source else title

    return LINK.sub(link, COMMENT.sub("", text))


class ReadmeHook(MetadataHookInterface):
    """Hatchling asks it for the ``dynamic`` readme."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the project's readme."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": for_pypi(text, metadata.get("urls", {}).get("Source")),
        }
