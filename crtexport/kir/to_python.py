"""Kernel IR as Python text: what the interpreter executes.

Every promise of the IR becomes a check, except where intervals show that it can't be broken.
Integers are Python integers, floats are NumPy scalars of their type, so that each operation
rounds as IEEE 754 says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.intervals import (
    Interval,
    Ranges,
    assigned_names,
    bits,
    contains,
    exact,
    truncated,
    type_range,
)
from crtexport.kir.intrinsics.registry import find_intrinsic
from crtexport.kir.language import BinaryOp, Body, Buffer, CompareOp, Expr, Kernel, Scalar, Stmt

_FLOAT = {Scalar.F16: "F16", Scalar.F32: "F32", Scalar.F64: "F64"}

_INFIX = {
    BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*", BinaryOp.WRAP_ADD: "+",
    BinaryOp.WRAP_SUB: "-", BinaryOp.WRAP_MUL: "*", BinaryOp.AND: "&", BinaryOp.OR: "|",
    BinaryOp.XOR: "^", BinaryOp.SHL: "<<", BinaryOp.SHR: ">>",
}

_RELATION = {
    CompareOp.EQ: "==", CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=",
    CompareOp.GT: ">", CompareOp.GE: ">=",
}

_PROMISING = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)
_WRAPPING = (BinaryOp.WRAP_ADD, BinaryOp.WRAP_SUB, BinaryOp.WRAP_MUL)
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


class InterpreterError(Exception):
    """A kernel broke a promise of the IR, or was given buffers that it doesn't take."""


def _to_integer(value: Any, low: int, high: int, what: str) -> int:
    """Returns a float truncated toward zero; it must be in range."""
    if not np.isfinite(value):
        raise InterpreterError(f"{what}: {value} has no integer")
    result = int(value)
    if not low <= result <= high:
        raise InterpreterError(f"{what}: {value} is out of range")
    return result


def _to_f32(value: int) -> np.float32:
    """Converts an integer with a single rounding: float() alone would round i64 twice."""
    return np.float32(value) if -(1 << 53) <= value <= 1 << 53 else np.int64(value).astype(
        np.float32
    )


def _divide(a: int, b: int, high: int, what: str) -> int:
    if b == 0:
        raise InterpreterError(f"{what}: division by zero")
    quotient = truncated(a, b)
    if quotient > high:
        raise InterpreterError(f"{what}: {a} / {b} overflows")
    return quotient


def _fail(what: str, *values: Any) -> NoReturn:
    raise InterpreterError(f"{what}: {', '.join(str(v) for v in values)}")


# ---- translation -------------------------------------------------------------------------------


class _Code(Struct, frozen=True):
    """Python text of an expression in parentheses, or a name; ``fails``: evaluating it may raise.
    """

    text: str
    fails: bool = False

    @property
    def is_name(self) -> bool:
        """Returns True where it may be repeated in the text without being evaluated twice."""
        return self.text.isidentifier() or self.text.isdigit()


class Translator:
    """Writes one Python function for a kernel.

    Raises InterpreterError for what could never run: stores to read-only buffers, unknown
    intrinsics, names that are no identifiers.
    """

    def __init__(self, kernel: Kernel, index_bits: int, use_intervals: bool) -> None:
        self.kernel = kernel
        self.index_bits = index_bits
        self.use_intervals = use_intervals
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "F16": np.float16, "F32": np.float32, "F64": np.float64, "to_f32": _to_f32,
            "to_integer": _to_integer, "divide": _divide, "fail": _fail,
        }
        self.fresh = count()
        # Of locals that are known to have few.
        self.bits: dict[str, int] = {}

    def translate(self) -> Callable[..., None]:
        """Returns the kernel as a function of its cells and parameters."""
        arguments = [
            *(self._identifier("b", b.name) for b in self.kernel.buffers),
            *(self._variable(p) for p in self.kernel.params),
        ]
        self.lines.append(f"def kernel({', '.join(arguments)}):")
        self._body(self.kernel.body, 1, Ranges({}, assigned_names(self.kernel.body),
                                               self.index_bits))
        source = "\n".join(self.lines) + "\n"
        code = compile(source, f"<kernel {self.kernel.name}>", "exec")
        # The text holds nothing but checked identifiers, numbers and quoted messages.
        exec(code, self.names)  # noqa: S102
        function: Callable[..., None] = self.names["kernel"]
        return function

    def _identifier(self, kind: str, name: str) -> str:
        if not _IDENTIFIER.fullmatch(name):
            raise InterpreterError(f"{self.kernel.name}: {name!r} is no identifier")
        return f"{kind}_{name}"

    def _variable(self, var: kir.Var) -> str:
        return self._identifier("v", var.name)

    def _value(self, value: Any) -> str:
        """Returns a global name for a value."""
        name = f"c{next(self.fresh)}"
        self.names[name] = value
        return name

    def _what(self, text: str) -> str:
        return repr(f"{self.kernel.name}: {text}")

    # -- statements

    def _body(self, body: Body, depth: int, ranges: Ranges) -> None:
        emitted = len(self.lines)
        for stmt in body:
            ranges = self._stmt(stmt, depth, ranges)
        if len(self.lines) == emitted:
            self._line(depth, "pass")

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def _stmt(self, stmt: Stmt, depth: int, ranges: Ranges) -> Ranges:
        match stmt:
            case kir.Let(var=var, value=value) | kir.Local(var=var, value=value):
                if isinstance(stmt, kir.Local) and stmt.bits is not None:
                    self.bits[var.name] = stmt.bits
                self._line(depth, f"{self._variable(var)} = {self._assigned(var, value, ranges)}")
                return ranges.bind(var, ranges.of(value))
            case kir.Assign(var=var, value=value):
                self._line(depth, f"{self._variable(var)} = {self._assigned(var, value, ranges)}")
            case kir.Store():
                self._store(stmt, depth, ranges)
            case kir.StoreVector():
                self._store_vector(stmt, depth, ranges)
            case kir.For():
                self._loop(stmt, depth, ranges)
            case kir.If():
                self._branch(stmt, depth, ranges)
            case kir.Comment():
                pass
        return ranges

    def _assigned(self, var: kir.Var, value: Expr, ranges: Ranges) -> str:
        """Returns the text of a value, checked where it is known to have few bits."""
        code, width = self._expr(value, ranges), self.bits.get(var.name)
        if width is None:
            return code.text
        allowed = -(1 << width - 1), (1 << width - 1) - 1
        return self._guarded(code, allowed, f"{var.name} in {width} bits").text

    def _store(self, stmt: kir.Store, depth: int, ranges: Ranges) -> None:
        if not stmt.buffer.writable:
            raise InterpreterError(f"{self.kernel.name}: {stmt.buffer.name} is read-only")
        value = self._expr(stmt.value, ranges).text
        cells = self._identifier("b", stmt.buffer.name)
        # The index comes second, but it can't change what the value is.
        self._line(depth, f"{cells}[{self._index(stmt.buffer, stmt.index, ranges).text}] = {value}")

    def _store_vector(self, stmt: kir.StoreVector, depth: int, ranges: Ranges) -> None:
        if not stmt.buffer.writable:
            raise InterpreterError(f"{self.kernel.name}: {stmt.buffer.name} is read-only")
        lanes, first = f"t{next(self.fresh)}", f"t{next(self.fresh)}"
        self._line(depth, f"{lanes} = {self._expr(stmt.value, ranges).text}")
        self._line(depth, f"{first} = {self._stretch(stmt.buffer, stmt.index, stmt.count, ranges)}")
        cells, dtype = self._identifier("b", stmt.buffer.name), stmt.buffer.dtype
        for lane in range(stmt.count):
            value = _Code(f"{lanes}[{lane}]")
            if dtype is not stmt.value.type.lane:
                value = self._wrapped(value, dtype)
            self._line(depth, f"{cells}[{first} + {lane}] = {value.text}")

    def _stretch(self, buffer: Buffer, index: Expr, count: int, ranges: Ranges) -> str:
        """Returns the index of the first of ``count`` neighbouring elements, checked."""
        code, found = self._expr(index, ranges), ranges.of(index)
        allowed = (0, buffer.size - count)
        if self._proven(allowed, found):
            return code.text
        what = f"{count} elements outside {buffer.name}[{buffer.size}]"
        return self._guarded(code, allowed, what).text

    def _loop(self, stmt: kir.For, depth: int, ranges: Ranges) -> None:
        extent = self._expr(stmt.extent, ranges)
        self._line(depth, f"for {self._variable(stmt.var)} in range({extent.text}):")
        bound = ranges.of(stmt.extent)
        last = max(bound[1] - 1, 0) if bound is not None else 0
        self._body(stmt.body, depth + 1, ranges.bind(stmt.var, (0, last)))

    def _branch(self, stmt: kir.If, depth: int, ranges: Ranges) -> None:
        self._line(depth, f"if {self._expr(stmt.condition, ranges).text}:")
        # A branch that can't be reached is translated all the same; it just never runs.
        self._body(stmt.then, depth + 1, ranges.assuming(stmt.condition, True) or ranges)
        if stmt.other:
            self._line(depth, "else:")
            self._body(stmt.other, depth + 1, ranges.assuming(stmt.condition, False) or ranges)

    # -- expressions

    def _proven(self, allowed: Interval, interval: Interval | None) -> bool:
        return self.use_intervals and interval is not None and contains(allowed, interval)

    def _named(self, code: _Code) -> tuple[str, str]:
        """Returns text that evaluates and names a value, and the name."""
        if code.is_name:
            return code.text, code.text
        name = f"t{next(self.fresh)}"
        return f"({name} := {code.text})", name

    def _guarded(self, code: _Code, allowed: Interval, what: str) -> _Code:
        """Raises when the value is not in ``allowed``."""
        first, name = self._named(code)
        return _Code(
            f"({name} if {allowed[0]} <= {first} <= {allowed[1]} "
            f"else fail({self._what(what)}, {name}))",
            fails=True,
        )

    def _index(self, buffer: Buffer, index: Expr, ranges: Ranges) -> _Code:
        code = self._expr(index, ranges)
        allowed = (0, buffer.size - 1)
        if self._proven(allowed, ranges.of(index)):
            return code
        return self._guarded(code, allowed, f"index outside {buffer.name}[{buffer.size}]")

    def _expr(self, expr: Expr, ranges: Ranges) -> _Code:
        match expr:
            case kir.Const():
                return self._const(expr)
            case kir.Var():
                return _Code(self._variable(expr))
            case kir.Load(buffer=buffer, index=index):
                code = self._index(buffer, index, ranges)
                return _Code(f"{self._identifier('b', buffer.name)}[{code.text}]", code.fails)
            case kir.LoadWord():
                return self._word(expr, ranges)
            case kir.LoadVector():
                return self._vector(expr, ranges)
            case kir.Binary():
                return self._binary(expr, ranges)
            case kir.Compare(op=op, a=a, b=b):
                x, y = self._expr(a, ranges), self._expr(b, ranges)
                return _Code(f"({x.text} {_RELATION[op]} {y.text})", x.fails or y.fails)
            case kir.Select():
                return self._select(expr, ranges)
            case kir.Cast():
                return self._cast(expr, ranges)
            case kir.Call():
                return self._call(expr, ranges)

    def _word(self, expr: kir.LoadWord, ranges: Ranges) -> _Code:
        buffer, bits = expr.buffer, 8 * expr.buffer.dtype.itemsize
        cells = self._identifier("b", buffer.name)
        parts, fails = [], False
        for part in range(32 // bits):
            at = kir.Binary(BinaryOp.ADD, expr.index, kir.Const(part, Scalar.INDEX))
            code = self._index(buffer, at, ranges)
            parts.append(f"({cells}[{code.text}] & {(1 << bits) - 1}) << {bits * part}")
            fails = fails or code.fails
        return self._wrapped(_Code(f"({' | '.join(parts)})", fails), Scalar.I32)

    def _vector(self, expr: kir.LoadVector, ranges: Ranges) -> _Code:
        cells, first = self._identifier("b", expr.buffer.name), f"t{next(self.fresh)}"
        # A tuple is evaluated from left to right.
        named = f"{first} := {self._stretch(expr.buffer, expr.index, expr.count, ranges)}"
        lanes = [f"{cells}[({named})]"]
        lanes += [f"{cells}[{first} + {lane}]" for lane in range(1, expr.count)]
        zero = "F32(0)" if expr.type.is_float else "0"
        return _Code(f"({', '.join(lanes + [zero] * (expr.type.lanes - expr.count))})", True)

    def _const(self, expr: kir.Const) -> _Code:
        if expr.type.is_float:
            return _Code(self._value(self.names[_FLOAT[expr.type]](expr.value)))
        value = int(expr.value)
        if not contains(type_range(expr.type, self.index_bits), (value, value)):
            raise InterpreterError(f"{self.kernel.name}: {value} is no {expr.type.value}")
        return _Code(f"({value})" if value < 0 else str(value))

    def _binary(self, expr: kir.Binary, ranges: Ranges) -> _Code:
        a, b = self._expr(expr.a, ranges), self._expr(expr.b, ranges)
        fails = a.fails or b.fails
        if expr.op in (BinaryOp.MIN, BinaryOp.MAX):
            return self._extreme(expr.op, a, b)
        if expr.type.is_float:
            operator = "/" if expr.op is BinaryOp.DIV else _INFIX[expr.op]
            return _Code(f"({a.text} {operator} {b.text})", fails)
        if expr.type is Scalar.I1:
            operator = _INFIX[expr.op]
            if not b.fails and expr.op is not BinaryOp.XOR:
                operator = {"&": "and", "|": "or"}[operator]
            return _Code(f"({a.text} {operator} {b.text})", fails)
        if expr.op is BinaryOp.DIV:
            high = ranges.top(expr.type)[1]
            return _Code(f"divide({a.text}, {b.text}, {high}, {self._what('div')})", True)
        if expr.op in (BinaryOp.SHL, BinaryOp.SHR):
            return self._shift(expr, a, b, ranges)
        code = _Code(f"({a.text} {_INFIX[expr.op]} {b.text})", fails)
        if expr.op not in _PROMISING + _WRAPPING:
            return code
        return self._ring(expr, code, ranges)

    def _extreme(self, op: BinaryOp, a: _Code, b: _Code) -> _Code:
        first, x = self._named(a)
        second, y = self._named(b)
        # a > b is b < a, also for NaN; a is evaluated first.
        relation = f"{first} {'>' if op is BinaryOp.MIN else '<'} {second}"
        return _Code(f"({y} if {relation} else {x})", a.fails or b.fails)

    def _ring(self, expr: kir.Binary, code: _Code, ranges: Ranges) -> _Code:
        """Translates sums, differences and products: checked for overflow, or wrapped, as the
        operation says."""
        top = ranges.top(expr.type)
        a, b = ranges.of(expr.a), ranges.of(expr.b)
        if a is not None and b is not None and self._proven(top, exact(expr.op, a, b)):
            return code
        if expr.op in _PROMISING and expr.type.is_signed:
            return self._guarded(code, top, f"{expr.op.value} overflows {expr.type.value}")
        return self._wrapped(code, expr.type)

    def _wrapped(self, code: _Code, type_: Scalar) -> _Code:
        width = bits(type_, self.index_bits)
        mask = (1 << width) - 1
        if not type_.is_signed:
            return _Code(f"({code.text} & {mask})", code.fails)
        half = 1 << (width - 1)
        return _Code(f"((({code.text} + {half}) & {mask}) - {half})", code.fails)

    def _shift(self, expr: kir.Binary, a: _Code, b: _Code, ranges: Ranges) -> _Code:
        allowed = (0, bits(expr.type, self.index_bits) - 1)
        if not self._proven(allowed, ranges.of(expr.b)):
            b = self._guarded(b, allowed, f"{expr.op.value} by more than the width")
        code = _Code(f"({a.text} {_INFIX[expr.op]} {b.text})", a.fails or b.fails)
        return self._wrapped(code, expr.type) if expr.op is BinaryOp.SHL else code

    def _select(self, expr: kir.Select, ranges: Ranges) -> _Code:
        condition = self._expr(expr.condition, ranges)
        # Both sides are evaluated whatever the condition, so neither may profit from it.
        then, other = self._expr(expr.then, ranges), self._expr(expr.other, ranges)
        fails = condition.fails or then.fails or other.fails
        if not (then.fails or other.fails):
            return _Code(f"({then.text} if {condition.text} else {other.text})", fails)
        first, x = self._named(then)
        second, y = self._named(other)
        return _Code(f"({first}, {second}, {x} if {condition.text} else {y})[2]", fails)

    def _cast(self, expr: kir.Cast, ranges: Ranges) -> _Code:
        value, source, target = self._expr(expr.value, ranges), expr.value.type, expr.type
        if target.is_float:
            wide = source in (Scalar.I64, Scalar.INDEX) and target is Scalar.F32
            return _Code(f"{'to_f32' if wide else _FLOAT[target]}({value.text})", value.fails)
        top = ranges.top(target)
        if source.is_float:
            what = self._what(f"cast to {target.value}")
            return _Code(f"to_integer({value.text}, {top[0]}, {top[1]}, {what})", True)
        if source is Scalar.I1:
            return _Code(f"(1 if {value.text} else 0)", value.fails)
        if self._proven(top, ranges.of(expr.value)):
            return value
        return self._wrapped(value, target)

    def _call(self, expr: kir.Call, ranges: Ranges) -> _Code:
        intrinsic = find_intrinsic(expr.name)
        if intrinsic is None:
            raise InterpreterError(f"{self.kernel.name}: no intrinsic {expr.name!r}")
        codes = [self._expr(arg, ranges) for arg in expr.args]
        texts = [
            f"float({c.text})" if arg.type.is_float and not arg.type.is_vector else c.text
            for c, arg in zip(codes, expr.args, strict=True)
        ]
        call = f"{self._value(intrinsic.evaluate)}({', '.join(texts)})"
        if expr.type.is_vector:
            return _Code(call, True)
        if expr.type.is_float:
            return _Code(f"{_FLOAT[expr.type]}({call})", any(c.fails for c in codes))
        return self._guarded(_Code(call), ranges.top(expr.type), f"result of {expr.name}")
