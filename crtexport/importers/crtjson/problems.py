"""Reports the problems of a model.json as one error: where, what, and a suggestion."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.importers.crtjson.document import FORMAT, NODE_MODELS, VERSION
from crtexport.support.errors import CrtExportError
from crtexport.support.schema import InvalidDataError, KeyPath, Problem, did_you_mean


def explain(error: InvalidDataError) -> CrtExportError:
    """Returns the most helpful of the problems that validation found, located by its key."""
    first, found = error.problems[0], {problem.path: problem for problem in error.problems}
    # A wrong format or version explains all other problems, unknown operators most of them.
    if ("format",) in found or (() in found and not first.text.startswith("not valid JSON")):
        return CrtExportError(
            "this JSON file is not a crtexport model",
            location="format" if ("format",) in found else (),
            hint=f'a model begins with {{"format": "{FORMAT}", "version": {VERSION}',
        )
    if (wrong := found.get(("version",))) is not None:
        return CrtExportError(
            f"version {VERSION} of the format can be read, found {wrong.unknown or 'none'}",
            location="version",
        )
    operators = [p for p in error.problems if p.kind == "unknown tag"]
    if operators:
        return _unknown_operators(operators)
    hint, others, text = first.hint, len(error.problems) - 1, first.text
    if "shape" in first.path[-2:-1] and text.endswith("found None"):
        text = "the size is open (null)"
        hint = "sizes must be fixed: write 1 for the batch"
    if others:
        more = f"{others} more such problem{'s' if others > 1 else ''} in this file"
        hint = f"{hint}; {more}" if hint else more
    return CrtExportError(text, location=_spelled(first.path), hint=hint)


def _unknown_operators(problems: Sequence[Problem]) -> CrtExportError:
    places: dict[str, list[str]] = {}
    for problem in problems:
        places.setdefault(problem.unknown, []).append(_spelled(problem.path[:-1]))
    lines = []
    for name, where in places.items():
        hint = did_you_mean(name, NODE_MODELS)
        lines.append(f"\n  {name!r}: {', '.join(where)}{f' ({hint})' if hint else ''}")
    what = "1 operator is" if len(problems) == 1 else f"{len(problems)} operators are"
    return CrtExportError(
        f"{what} not supported:{''.join(lines)}", hint="docs/model_json.md lists those that are"
    )


def _spelled(path: KeyPath) -> str:
    """Returns a path like ``nodes[2].attributes.stride``."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
    ).removeprefix(".")
