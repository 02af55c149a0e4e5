"""Kernels as text, for people: stable, one statement per line, every type visible."""

from __future__ import annotations

from collections.abc import Iterator

from crtexport.errors import printable
from crtexport.kernels.ir import (
    Assign,
    Binary,
    BinaryOp,
    Body,
    Buffer,
    Call,
    Cast,
    Comment,
    Compare,
    CompareOp,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    LoadVector,
    LoadWord,
    Local,
    Scalar,
    Select,
    Stmt,
    Store,
    StoreVector,
    Var,
)

_INFIX = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.DIV: "/"}

_RELATION = {
    CompareOp.EQ: "==", CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=",
    CompareOp.GT: ">", CompareOp.GE: ">=",
}


def dump(kernel: Kernel) -> str:
    """The kernel as text, ending in a newline. Constants other than ``index`` carry their type."""
    lines = [f"# {printable(line)}" for line in kernel.doc]
    arguments = [*map(_buffer, kernel.buffers), *map(_typed, kernel.params)]
    lines += [f"kernel {kernel.name}(", *(f"    {a}," for a in arguments), ") {"]
    lines += _body(kernel.body, 1)
    return "\n".join([*lines, "}"]) + "\n"


def _buffer(buffer: Buffer) -> str:
    words = [f"{buffer.name}: {buffer.dtype.value}[{buffer.size}]", f"align {buffer.align}"]
    words += ["writable"] * buffer.writable + ["noalias"] * buffer.noalias
    return " ".join(words)


def _typed(var: Var) -> str:
    return f"{var.name}: {var.type.value}"


def _body(body: Body, depth: int) -> list[str]:
    return [line for stmt in body for line in _stmt(stmt, depth)]


def _stmt(stmt: Stmt, depth: int) -> Iterator[str]:
    pad = "    " * depth
    match stmt:
        case Let(var=var, value=value):
            yield f"{pad}let {_typed(var)} = {_outer(value)}"
        case Local(var=var, value=value):
            yield f"{pad}local {_typed(var)} = {_outer(value)}"
        case Assign(var=var, value=value):
            yield f"{pad}{var.name} = {_outer(value)}"
        case Store(buffer=buffer, index=index, value=value):
            yield f"{pad}{buffer.name}[{_outer(index)}] = {_outer(value)}"
        case StoreVector(buffer=buffer, index=index, value=value, count=count):
            yield f"{pad}{buffer.name}[{_outer(index)}; {count}] = {_outer(value)}"
        case For(var=var, extent=extent, body=body, unroll=unroll, vectorize=vectorize):
            hints = "".join(
                f" {name} {hint}" for name, hint in (("unroll", unroll), ("vectorize", vectorize))
                if hint is not None
            )
            yield f"{pad}for {var.name} < {expression(extent)}{hints} {{"
            yield from _body(body, depth + 1)
            yield f"{pad}}}"
        case If(condition=condition, then=then, other=other):
            yield f"{pad}if {_outer(condition)} {{"
            yield from _body(then, depth + 1)
            if other:
                yield f"{pad}}} else {{"
                yield from _body(other, depth + 1)
            yield f"{pad}}}"
        case Comment(text=text):
            yield f"{pad}# {printable(text)}"


def _outer(expr: Expr) -> str:
    """An expression without the parentheses that only operators around it would need."""
    text = expression(expr)
    bare = isinstance(expr, Compare) or (isinstance(expr, Binary) and expr.op in _INFIX)
    return text[1:-1] if bare else text


def expression(expr: Expr) -> str:
    """One expression as text, in parentheses where it is an infix operation."""
    match expr:
        case Const(value=value, type=type_):
            return str(value) if type_ is Scalar.INDEX else f"{value!r}:{type_.value}"
        case Var(name=name):
            return name
        case Load(buffer=buffer, index=index):
            return f"{buffer.name}[{_outer(index)}]"
        case LoadWord(buffer=buffer, index=index):
            return f"word({buffer.name}[{_outer(index)}])"
        case LoadVector(buffer=buffer, index=index, type=type_, count=count):
            return f"{type_.value}({buffer.name}[{_outer(index)}; {count}])"
        case Binary(op=op, a=a, b=b) if op in _INFIX:
            return f"({expression(a)} {_INFIX[op]} {expression(b)})"
        case Binary(op=op, a=a, b=b):
            return f"{op.value}({_outer(a)}, {_outer(b)})"
        case Compare(op=relation, a=a, b=b):
            return f"({expression(a)} {_RELATION[relation]} {expression(b)})"
        case Select(condition=condition, then=then, other=other):
            return f"select({_outer(condition)}, {_outer(then)}, {_outer(other)})"
        case Cast(value=inner, type=type_):
            return f"{type_.value}({_outer(inner)})"
        case Call(name=name, args=args):
            return f"{name}({', '.join(map(_outer, args))})"
