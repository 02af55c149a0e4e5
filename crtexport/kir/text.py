"""Kernels as text, for people: stable, one statement per line, every type visible."""

from __future__ import annotations

from typing import assert_never

from crtexport.kir import language as kir
from crtexport.kir.language import BinaryOp, Body, Buffer, CompareOp, Expr, Kernel, Scalar, Stmt
from crtexport.support.errors import printable

_INFIX = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.DIV: "/"}

_INDEX = Scalar.INDEX

_RELATION = {
    CompareOp.EQ: "==", CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=",
    CompareOp.GT: ">", CompareOp.GE: ">=",
}


def dump(kernel: Kernel) -> str:
    """Returns the kernel as text, ending in a newline. Constants show their type unless it is
    ``index``."""
    lines = [f"# {printable(line)}" for line in kernel.doc]
    arguments = [_buffer(buffer, kernel) for buffer in kernel.buffers]
    arguments += map(_typed, kernel.params)
    lines += [f"kernel {kernel.name}(", *(f"    {a}," for a in arguments), ") {"]
    lines += _body(kernel.body, 1)
    return "\n".join([*lines, "}"]) + "\n"


def _buffer(buffer: Buffer, kernel: Kernel) -> str:
    words = [f"{buffer.name}: {buffer.dtype.value}[{buffer.size}]", f"align {buffer.align}"]
    words += ["writable"] * buffer.writable
    words += ["noalias"] * (buffer.name not in kernel.overlapping)
    return " ".join(words)


def _typed(var: kir.Var) -> str:
    return f"{var.name}: {var.type.text}"


def _body(body: Body, depth: int) -> list[str]:
    lines: list[str] = []
    for stmt in body:
        _stmt(stmt, depth, lines)
    return lines


def _stmt(stmt: Stmt, depth: int, lines: list[str]) -> None:
    pad = "    " * depth
    match stmt:
        case kir.Let():
            lines.append(f"{pad}let {_typed(stmt.var)} = {_outer(stmt.value)}")
        case kir.Local():
            bits = "" if stmt.bits is None else f" in {stmt.bits} bits"
            lines.append(f"{pad}local {_typed(stmt.var)}{bits} = {_outer(stmt.value)}")
        case kir.Assign():
            lines.append(f"{pad}{stmt.var.name} = {_outer(stmt.value)}")
        case kir.Store():
            lines.append(f"{pad}{stmt.buffer.name}[{_outer(stmt.index)}] = {_outer(stmt.value)}")
        case kir.StoreVector(buffer=buffer, index=index, value=value, count=count):
            lines.append(f"{pad}{buffer.name}[{_outer(index)}; {count}] = {_outer(value)}")
        case kir.For():
            head = f"for {stmt.var.name} < {expression(stmt.extent)}{_hints(stmt)}"
            lines.append(f"{pad}{head} {{")
            lines += _body(stmt.body, depth + 1)
            lines.append(f"{pad}}}")
        case kir.If(condition=condition, then=then, other=other):
            lines.append(f"{pad}if {_outer(condition)} {{")
            lines += _body(then, depth + 1)
            if other:
                lines.append(f"{pad}}} else {{")
                lines += _body(other, depth + 1)
            lines.append(f"{pad}}}")
        case kir.Comment(text=text):
            lines.append(f"{pad}# {printable(text)}")


def _outer(expr: Expr) -> str:
    """Removes parentheses that only operators around the expression would need."""
    text = expression(expr)
    if isinstance(expr, kir.LEAVES):
        return text
    bare = isinstance(expr, kir.Compare) or (isinstance(expr, kir.Binary) and expr.op in _INFIX)
    return text[1:-1] if bare else text


def expression(expr: Expr) -> str:
    """Returns one expression as text, in parentheses where it is an infix operation."""
    match expr:
        case kir.Var():
            return expr.name
        case kir.Const():
            type_ = expr.type
            return str(expr.value) if type_ is _INDEX else f"{expr.value!r}:{type_.text}"
        case kir.Binary():
            sign = _INFIX.get(expr.op)
            if sign is not None:
                return f"({expression(expr.a)} {sign} {expression(expr.b)})"
            return f"{expr.op.value}({_outer(expr.a)}, {_outer(expr.b)})"
        case kir.Load():
            return f"{expr.buffer.name}[{_outer(expr.index)}]"
        case kir.LoadWord():
            return f"word({expr.buffer.name}[{_outer(expr.index)}])"
        case kir.LoadVector():
            return f"{expr.type.text}({expr.buffer.name}[{_outer(expr.index)}; {expr.count}])"
        case kir.Compare():
            return f"({expression(expr.a)} {_RELATION[expr.op]} {expression(expr.b)})"
        case kir.Select():
            return f"select({', '.join(map(_outer, (expr.condition, expr.then, expr.other)))})"
        case kir.Cast():
            return f"{expr.type.text}({_outer(expr.value)})"
        case kir.Call():
            return f"{expr.name}({', '.join(map(_outer, expr.args))})"
        case _:
            assert_never(expr)


def _hints(loop: kir.For) -> str:
    words = [("unroll", loop.unroll), ("vectorize", loop.vectorize)]
    hints = "".join(f" {name} {hint}" for name, hint in words if hint is not None)
    return f"{hints} assembled" if loop.assembled else hints
