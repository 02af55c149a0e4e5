"""The page docs/api.md, made of signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

import crtexport
from crtexport.firmware.board import Board
from crtexport.firmware.run import BuildResult, RunResult
from crtexport.ir.graph import Graph
from crtexport.mlf.reader import Package
from crtexport.package_actions import Library, Simulated
from crtexport.pipeline.options import ExportOptions
from crtexport.pipeline.result import Exported, Prepared
from crtexport.plan.model import Plan
from crtexport.quantization.quantize import QuantizeResult
from crtexport.reports.bench import Bench, LayerCost
from crtexport.reports.difference import Difference
from crtexport.reports.figures import Report
from crtexport.reports.host import HostBench
from crtexport.reports.installed import Installed
from crtexport.reports.plans import PlanPoint, Plans
from crtexport.verification import (
    LayerComparison,
    LayersResult,
    OutputComparison,
    VerifyResult,
)

TOP = """\
# Python reference

<!-- made of docstrings by pytest --update-golden tests/docs/test_api_page.py -->

The functions of `import crtexport`, and then the records that they take and return.
[From Python](python.md) has examples, and [compatibility](versions.md) says what may change. All
modules and names that are not on these pages are internal.
"""

RECORDS: tuple[type, ...] = (
    ExportOptions, Exported, Prepared, Graph, Plan, Package, Simulated, RunResult, BuildResult,
    Library, VerifyResult, OutputComparison, LayersResult, LayerComparison, Bench, LayerCost,
    HostBench, Report, Plans, PlanPoint, Difference, QuantizeResult, Board, Installed,
)
VERBS = (
    "load", "export", "stage", "inspect", "unpack", "convert", "simulate", "simulate_all", "run",
    "run_all", "build", "write_library", "verify", "verify_layers", "bench", "quantize", "boards",
    "report", "plans_of", "diff", "doctor", "schema", "InputChoices", "CrtExportError",
)
_ROLE = re.compile(r":(?:func|class|attr|mod|meth|data|term):`[~.]?([^`<]+?)(?:\s*<[^`]*>)?`")
_WIDTH = 96
_LITERAL = re.compile(r"``([^`]+)``")


def api_page() -> str:
    """The text of the page."""
    parts = [TOP, "\n## Functions\n", *(_part(name, getattr(crtexport, name)) for name in VERBS)]
    parts += ["\n## Results and options\n", *(_part(kind.__name__, kind) for kind in RECORDS)]
    return "\n".join(parts).rstrip() + "\n"


def _part(name: str, found: Any) -> str:
    lines = [f"### {name}", ""]
    if not inspect.isclass(found):
        lines += ["<!-- not run: a signature -->", "```python", _signature(name, found), "```", ""]
    lines += [_markdown(inspect.getdoc(found) or ""), ""]
    if inspect.isclass(found):
        rows = [*_fields(found), *_members(found)]
        if rows:
            lines += ["| | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parts, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        text = f"{stars}{parameter.name}: {_type(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        parts.append(text)
    end = f") -> {_type(signature.return_annotation)}"
    short = f"{name}({', '.join(parts)}{end}"
    if len(short) <= _WIDTH:
        return short
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) > _WIDTH - 6:
            lines.append("")
        lines[-1] += f" {part}," if lines[-1] else f"    {part},"
    return "\n".join([f"{name}(", *lines, end])


def _type(annotation: object) -> str:
    if not isinstance(annotation, str):
        # Without the limits of its values, which would be written out.
        bare = type("_", (), {"__annotations__": {"it": annotation}})
        annotation = inspect.formatannotation(typing.get_type_hints(bare)["it"])
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", annotation)


def _default(value: object) -> str:
    if isinstance(value, str | int | float | tuple | None):
        return repr(value)
    return f"{type(value).__name__}()"


def _fields(kind: type) -> Iterator[str]:
    if not issubclass(kind, msgspec.Struct):
        return
    hints = {k: v for base in reversed(kind.__mro__) for k, v in _annotations(base).items()}
    for name in kind.__struct_fields__:
        yield f"| `{name}` | `{_cell(_type(hints[name]))}` |"


def _annotations(kind: type) -> dict[str, Any]:
    return dict(vars(kind).get("__annotations__", {}))


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if isinstance(member, property) and not name.startswith("_"):
            said = _markdown(inspect.getdoc(member) or "")
            yield f"| `{name}` | {_cell(' '.join(said.split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _markdown(text: str) -> str:
    """A docstring with its marks as Markdown has them."""
    return _LITERAL.sub(r"`\1`", _ROLE.sub(r"`\1`", text)).strip()
