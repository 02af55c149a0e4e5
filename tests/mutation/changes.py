"""Small changes of what a program means, each at one place of its text.

Neither mutmut nor cosmic-ray fits here: both run one command for each change, or want to import the
package changed. What they change is little code over ``ast``: a change replaces a piece of the
source, so that a survivor is shown as a diff of the file as it was written.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}
_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
}
_WHOLE = ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript
"""Expressions that need no parentheses anywhere."""
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_CONSTANTS = {"bool": ("True", "False"), "int": ("0", "1")}
"""Values that functions are made to return, by the type that they say they return."""


@dataclass(frozen=True, order=True)
class Change:
    """``new`` instead of the bytes from ``start`` to ``end`` of a file, on line ``line``."""

    path: str
    line: int
    start: int
    end: int
    new: str
    family: str
    kind: str

    def of(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Returns what a reader sees of it."""
        before, after = source.decode(), self.of(source).decode()
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), self.path, f"{self.path} ({self.kind})",
            lineterm="", n=2,
        )
        return "\n".join(lines)


def changes(path: str, source: bytes) -> list[Change]:
    """All changes of a file that this module knows, in the order of the text."""
    return sorted(set(_Finder(path, source).found()))


def drawn(root: Path, folders: Sequence[str], count: int, seed: int) -> list[Change]:
    """``count`` changes of the files of ``folders`` of the package, as many of each family: there
    are more numbers in a program than conditions."""
    families: dict[str, list[Change]] = {}
    for folder in folders:
        for file in sorted((root / "crtexport" / folder).rglob("*.py")):
            for change in changes(file.relative_to(root).as_posix(), file.read_bytes()):
                families.setdefault(change.family, []).append(change)
    draw = random.Random(seed)  # noqa: S311  (repeatable, not secret)
    shuffled = [draw.sample(families[name], len(families[name])) for name in sorted(families)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*shuffled))
    chosen = (change for change in turns if change is not None and _compiles(root, change))
    return list(itertools.islice(chosen, count))


def _compiles(root: Path, change: Change) -> bool:
    try:
        ast.parse(change.of((root / change.path).read_bytes()))
    except SyntaxError:
        return False
    return True


def _obvious(argument: ast.expr) -> bool:
    """Returns whether the type checker would see it in another one's place."""
    match argument:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.Name(id=name):
            return name in ("self", "b", "context", "lowering", "graph")
        case _:
            return isinstance(argument, ast.Starred | ast.JoinedStr | ast.Lambda)


class _Finder:
    """Goes through the tree of a file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def found(self) -> Iterator[Change]:
        yield from self._within(ast.parse(self.source), None)

    def _within(self, node: ast.AST, returns: str | None) -> Iterator[Change]:
        """Changes of ``node`` and what is in it; a function around it says that it returns
        ``returns``."""
        match node:
            case ast.Raise() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.Assert():
                return  # what users read, and what only readers do
            case ast.AnnAssign(value=value):
                if value is not None:
                    yield from self._within(value, returns)
                return
            case ast.FunctionDef(decorator_list=decorators, args=args, body=body):
                says = ast.unparse(node.returns) if node.returns else None
                for child in (*decorators, *args.defaults, *args.kw_defaults, *body):
                    if child is not None:
                        yield from self._within(child, says)
                return
            case ast.If(test=test) if ast.unparse(test) == "TYPE_CHECKING":
                return
        yield from self._of(node, returns)
        for child in ast.iter_child_nodes(node):
            yield from self._within(child, returns)

    def _of(self, node: ast.AST, returns: str | None) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=rights):
                for first, op, second in zip((left, *rights), ops, rights, strict=False):
                    if type(op) in _COMPARISONS:
                        words = _COMPARISONS[type(op)]
                        yield from self._between("comparison", first, second, *words)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                yield from self._between("arithmetic", left, right, *_OPERATORS[type(op)])
            case ast.BoolOp(values=values, op=op):
                now, other = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                text = f" {other} ".join(map(self._text, values))
                yield self._replaced("condition", node, f"({text})", f"{other} for {now}")
                for dropped in range(len(values)):
                    rest = [self._text(v) for i, v in enumerate(values) if i != dropped]
                    text = f" {now} ".join(rest)
                    yield self._replaced("condition", node, f"({text})", "condition dropped")
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                family = "condition" if isinstance(node.op, ast.Not) else "arithmetic"
                yield self._replaced(family, node, f"({self._text(operand)})", "sign dropped")
            case ast.If(test=test):
                for value in ("True", "False"):
                    yield self._replaced("condition", test, value, f"if {value}")
            case ast.IfExp(body=body, orelse=orelse):
                for one in (body, orelse):
                    yield self._replaced("condition", node, f"({self._text(one)})", "one of two")
            case ast.For(iter=items) | ast.comprehension(iter=items):
                new = f"list({self._text(items)})[:-1]"
                yield self._replaced("loop", items, new, "last left out")
            case ast.Call():
                yield from self._call(node)
            case ast.Return(value=value) if value is not None:
                for constant in _CONSTANTS.get(returns or "", ()):
                    if self._text(value) != constant:
                        yield self._replaced("result", value, constant, "constant returned")
            case ast.Constant(value=bool()):
                yield self._replaced("number", node, str(not node.value), "other truth")
            case ast.Constant(value=int()):
                for other in (node.value - 1, node.value + 1):
                    new = f"{other}" if other >= 0 else f"({other})"
                    yield self._replaced("number", node, new, "by one")
            case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Break():
                yield self._replaced("statement", node, "pass", "left out")
            case _:
                pass

    def _call(self, node: ast.Call) -> Iterator[Change]:
        match node.func:
            case ast.Name(id=name) if name in _CALLS:
                kind = f"{_CALLS[name]} for {name}"
                yield self._replaced("extreme", node.func, _CALLS[name], kind)
        if len(node.args) > 1 and not any(map(_obvious, node.args[:2])):
            first, second = node.args[:2]
            if ast.dump(first) != ast.dump(second):
                start, end = self._span(first)[0], self._span(second)[1]
                between = self.source[self._span(first)[1] : self._span(second)[0]].decode()
                new = self._text(second) + between + self._text(first)
                yield Change(self.path, first.lineno, start, end, new, "arguments", "swapped")

    def _between(
        self, family: str, left: ast.expr, right: ast.expr, now: str, new: str
    ) -> Iterator[Change]:
        """``new`` for the operator ``now`` between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        pattern = re.escape(now).replace(r"\ ", r"\s+")
        match_ = re.search(pattern.encode(), self.source[start:end])
        if match_ is not None:
            line = self.source[: start + match_.start()].count(b"\n") + 1
            yield Change(
                self.path, line, start + match_.start(), start + match_.end(), new,
                family, f"{new} for {now}",
            )

    def _replaced(self, family: str, node: ast.expr | ast.stmt, new: str, kind: str) -> Change:
        return Change(self.path, node.lineno, *self._span(node), new, family, kind)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.lines[node.lineno - 1] + node.col_offset,
            self.lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr) -> str:
        """An operand as it stands in the source, in parentheses that keep it one."""
        start, end = self._span(node)
        text = self.source[start:end].decode()
        return text if isinstance(node, _WHOLE) else f"({text})"
