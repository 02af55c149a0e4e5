"""Prints bodies of functions."""

from __future__ import annotations

from collections.abc import Sequence


def function(prototype: str, *paragraphs: Sequence[str]) -> str:
    """Returns a function whose body is ``paragraphs`` of lines, with empty lines between them."""
    body = "\n\n".join("\n".join(lines) for lines in paragraphs if lines)
    return f"{prototype}\n{{\n{body}\n}}"


def unless(conditions: Sequence[str], result: str) -> list[str]:
    """Returns the lines that return ``result`` from a function if one of the conditions holds."""
    if not conditions:
        return []
    together = " ||\n        ".join(f"({condition})" for condition in conditions)
    bare = conditions[0] if len(conditions) == 1 else together
    return [f"    if ({bare}) {{", f"        return {result};", "    }"]
