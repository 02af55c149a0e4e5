"""Pages of reports run nothing and ask for nothing, whatever the names in them are."""

from __future__ import annotations

from html.parser import HTMLParser

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u202e\x1b[31m'


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check_harmless(text: str) -> None:
    """Asserts that a page runs nothing and asks for nothing."""
    for tag, attributes in Elements(text).found:
        assert tag not in ("img", "link", "iframe", "object", "embed", "base", "form", "a")
        assert not [name for name in attributes if name.startswith("on")]
        assert not {"src", "href", "xlink:href", "action"} & attributes.keys()
        if tag == "script":
            assert attributes == {"type": "application/json", "id": "crtexport-report"}
    assert text.count("url(") == text.count("url(#hatch)")
    assert "@import" not in text
