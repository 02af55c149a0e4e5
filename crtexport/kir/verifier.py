"""Proves that a kernel is well formed: types, names, scopes, and every index inside its buffer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from crtexport.kir import language as kir
from crtexport.kir.intervals import (
    Interval,
    Ranges,
    assigned_names,
    bits,
    contains,
    hull,
    type_range,
)
from crtexport.kir.intrinsics.registry import find_intrinsic
from crtexport.kir.language import BinaryOp, Body, Buffer, Expr, Kernel, Scalar, Stmt

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")
_LOGIC = (BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR)
_ON_FLOATS = (
    BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MIN, BinaryOp.MAX
)


_WALKS = 4  # after which the interval of a Local that still grows is taken to be its type's

_I1, _INDEX, _F16, _F32 = Scalar.I1, Scalar.INDEX, Scalar.F16, Scalar.F32


class KernelError(Exception):
    """A kernel breaks a rule of Kernel IR: a defect of crtexport, not of the user's input."""


class AccessInterval(NamedTuple):
    """The elements of a buffer that a kernel can touch."""

    lowest: int
    highest: int
    reads: bool
    writes: bool


Bounds = Mapping[str, int | tuple[int, int]]


def verify(kernel: Kernel, params: Bounds | None = None) -> None:
    """Raises KernelError, naming the kernel, unless it is well formed.

    Checked: identifiers, one definition per name, scopes, types, constants in range, buffers
    known and writable where stored to, intrinsics, and that each index lies in its buffer.
    ``params``: values or closed intervals of integer parameters; the others can be anything.
    """
    _Verifier(kernel, params or {}).kernel_()


def verify_narrow(kernel: Kernel, bounds: Bounds, index_bits: int) -> None:
    """Raises KernelError unless all that a well-formed kernel computes in ``index`` fits into
    ``index_bits``.

    ``bounds``: values or intervals of parameters, and of the elements of buffers.
    """
    narrow = _Narrow(
        type_range(_INDEX, index_bits),
        {b.name: v for b in kernel.buffers if isinstance(v := bounds.get(b.name), tuple)},
    )
    params = {p.name: bounds[p.name] for p in kernel.params if p.name in bounds}
    for walk in itertools.count():
        narrow.grown, narrow.widens = False, walk >= _WALKS
        _Verifier(kernel, params, narrow).kernel_()
        if not narrow.grown:
            return


def access_intervals(kernel: Kernel, params: Bounds | None = None) -> dict[str, AccessInterval]:
    """Returns what a well-formed kernel touches of each buffer; buffers that it never touches are
    absent.

    Raises KernelError as :func:`verify` does.
    """
    verifier = _Verifier(kernel, params or {})
    verifier.kernel_()
    return verifier.accesses


class _Narrow:
    """Evidence that indices fit a narrow type: the type, the values that buffers contain, and for
    each Local that is assigned to an interval that contains all its values."""

    def __init__(self, top: Interval, contents: dict[str, Interval]) -> None:
        self.top, self.contents = top, contents
        self.settled: dict[str, Interval] = {}
        self.grown = self.widens = False

    def settle(self, var: kir.Var, assigned: Interval | None) -> Interval | None:
        """Returns the interval of a Local, widened by that of a value assigned to it."""
        if assigned is None:
            return None
        before = self.settled.get(var.name)
        after = assigned if before is None else hull(before, assigned)
        if after != before:
            self.grown = True
            self.settled[var.name] = type_range(var.type) if self.widens else after
        return self.settled[var.name]


class _Verifier:
    """One walk over a kernel."""

    def __init__(self, kernel: Kernel, params: Bounds, narrow: _Narrow | None = None) -> None:
        self.kernel = kernel
        self.narrow = narrow
        self.params = params
        self.buffers: dict[str, Buffer] = {}
        self.names: set[str] = set()
        self.accesses: dict[str, AccessInterval] = {}

    def fail(self, problem: str) -> NoReturn:
        raise KernelError(f"kernel {self.kernel.name!r}: {problem}")

    def check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.fail(problem)

    # -- names

    def define(self, name: str) -> None:
        """A new name in the kernel."""
        if not _IDENTIFIER.fullmatch(name):
            self.fail(f"{name!r} is no identifier")
        if name in self.names:
            self.fail(f"{name} is defined twice")
        self.names.add(name)

    def kernel_(self) -> None:
        self.check(
            bool(_IDENTIFIER.fullmatch(self.kernel.name)), "the name is no identifier"
        )
        for buffer in self.kernel.buffers:
            self.buffer(buffer)
        strange = set(self.kernel.overlapping) - set(self.buffers)
        self.check(not strange, f"no buffers {sorted(strange)}")
        ranges = Ranges({}, assigned_names(self.kernel.body))
        scope: dict[str, Stmt | None] = {}
        types: dict[str, Scalar] = {}
        for param in self.kernel.params:
            self.define(param.name)
            self.check(param.type in kir.ARITHMETIC, f"parameter {param.name}: {param.type.value}")
            scope[param.name], types[param.name] = None, param.type
            ranges = ranges.bind(param, self.parameter_range(param))
        unknown = set(self.params) - {p.name for p in self.kernel.params}
        self.check(not unknown, f"no parameters {sorted(unknown)}")
        self.body(self.kernel.body, _Scope(scope, types), ranges)

    def parameter_range(self, param: kir.Var) -> Interval | None:
        given = self.params.get(param.name)
        if given is None or param.type.is_float:
            return None
        bound = (given, given) if isinstance(given, int) else given
        self.check(
            bound[0] <= bound[1] and contains(type_range(param.type), bound),
            f"parameter {param.name}: {bound} is no interval of {param.type.value}",
        )
        return bound

    def buffer(self, buffer: Buffer) -> None:
        self.define(buffer.name)
        where = f"buffer {buffer.name}"
        self.check(
            buffer.dtype not in (Scalar.I1, Scalar.INDEX) and not buffer.dtype.is_vector,
            f"{where}: no storage type",
        )
        self.check(buffer.size >= 0, f"{where}: size {buffer.size}")
        power = buffer.align > 0 and buffer.align & (buffer.align - 1) == 0
        self.check(
            power and buffer.align >= buffer.dtype.itemsize, f"{where}: align {buffer.align}"
        )
        self.buffers[buffer.name] = buffer

    # -- statements

    # Called for each part of each kernel: words are made only where something is wrong.

    def body(self, body: Body, scope: _Scope, ranges: Ranges | None) -> None:
        """Checks statements. ``ranges`` is None where they can't be reached: then indices need no
        proof."""
        inner = None if ranges is None else ranges.inner()
        for stmt in body:
            self.stmt(stmt, scope, inner)

    def stmt(self, stmt: Stmt, scope: _Scope, ranges: Ranges | None) -> None:
        """Checks one statement, and adds to the ranges what is known after it."""
        match stmt:
            case kir.Let() | kir.Local():
                self._name(stmt, scope, ranges)
            case kir.Assign():
                var = stmt.var
                self.variable(var, scope)
                if not isinstance(scope.origin[var.name], kir.Local):
                    self.fail(f"{var.name} can't be assigned")
                self.same(var.type, self.expr(stmt.value, scope, ranges), var.name)
                if self.narrow is not None and ranges is not None:
                    self.narrow.settle(var, ranges.of(stmt.value))
            case kir.Store():
                buffer = stmt.buffer
                self.written(buffer)
                self.same(buffer.dtype, self.expr(stmt.value, scope, ranges), buffer.name)
                self.index(buffer, stmt.index, 1, scope, ranges, write=True)
            case kir.StoreVector():
                buffer = stmt.buffer
                self.written(buffer)
                self.expr(stmt.value, scope, ranges)
                self.lanes(buffer, stmt.value.type, stmt.count)
                self.index(buffer, stmt.index, stmt.count, scope, ranges, write=True)
            case kir.For():
                self.loop(stmt, scope, ranges)
            case kir.If():
                condition = stmt.condition
                self.same(_I1, self.expr(condition, scope, ranges), "a condition")
                for body, truth in ((stmt.then, True), (stmt.other, False)):
                    inner = ranges.assuming(condition, truth) if ranges is not None else None
                    self.body(body, scope.inner(), inner)
            case kir.Comment():
                self.check(len(stmt.text.splitlines()) <= 1, "a comment has several lines")

    def _name(self, stmt: kir.Let | kir.Local, scope: _Scope, ranges: Ranges | None) -> None:
        var, value = stmt.var, stmt.value
        self.same(var.type, self.expr(value, scope, ranges), var.name)
        self.define(var.name)
        if isinstance(stmt, kir.Local) and not (var.type in kir.ARITHMETIC or var.type.is_vector):
            self.fail(f"{var.name} can't be a local {var.type.value}")
        if isinstance(stmt, kir.Local) and stmt.bits is not None:
            signed = not (var.type.is_vector or var.type.is_float) and var.type.is_signed
            fewer = signed and 1 <= stmt.bits < bits(var.type)
            self.check(fewer, f"{var.name} can't be known to have {stmt.bits} bits")
        scope.add(var, stmt)
        if ranges is not None:
            ranges.name(var, value)
            if self.narrow is not None and var.name in ranges.mutable:
                settled = self.narrow.settle(var, ranges.of(value))
                if settled is not None:
                    ranges.known[var.name] = settled

    def loop(self, stmt: kir.For, scope: _Scope, ranges: Ranges | None) -> None:
        name = stmt.var.name
        self.check(stmt.var.type is _INDEX, f"loop variable {name} is no index")
        self.same(_INDEX, self.expr(stmt.extent, scope, ranges), f"extent of {name}")
        for hint in (stmt.unroll, stmt.vectorize):
            self.check(hint is None or hint >= 1, f"loop {name}: hint {hint}")
        match stmt.extent:
            case kir.Const(value=value):
                self.check(value >= 0, f"extent of {name} is {value}")
            case kir.Var() if scope.origin.get(stmt.extent.name) is None:
                pass
            case _:
                self.fail(f"extent of {name} is neither a constant nor a parameter")
        self.define(name)
        inner = scope.inner()
        inner.add(stmt.var, stmt)
        within: Ranges | None = None
        if ranges is not None:
            extent = ranges.of(stmt.extent)
            if extent is not None and extent[1] > 0:
                within = ranges.bind(stmt.var, (0, extent[1] - 1))
        self.body(stmt.body, inner, within)

    # -- expressions

    def same(self, expected: Scalar, actual: Scalar, what: str) -> None:
        if expected is not actual:
            self.fail(f"{what} needs {expected.value}, got {actual.value}")

    def known(self, buffer: Buffer) -> None:
        found = self.buffers.get(buffer.name)
        if found is not buffer and found != buffer:
            self.fail(f"buffer {buffer.name} is no argument")

    def written(self, buffer: Buffer) -> None:
        self.known(buffer)
        if not buffer.writable:
            self.fail(f"{buffer.name} is read-only")

    def variable(self, var: kir.Var, scope: _Scope) -> None:
        type_ = scope.types.get(var.name)
        if type_ is None:
            self.fail(f"{var.name} is not in scope")
        if type_ is not var.type:
            self.same(type_, var.type, var.name)

    def index(
        self, buffer: Buffer, index: Expr, count: int, scope: _Scope, ranges: Ranges | None, *,
        write: bool,
    ) -> None:
        """Checks an access to ``count`` neighbouring elements, which must lie inside of the buffer.
        """
        type_ = self.expr(index, scope, ranges)
        if type_ is not _INDEX:
            self.same(_INDEX, type_, f"index of {buffer.name}")
        if ranges is None:
            return
        lowest, highest = ranges.integer(index)
        self.inside(buffer, lowest, highest)
        if count > 1:
            self.inside(buffer, lowest + count - 1, highest + count - 1)
            highest += count - 1
        before = self.accesses.get(buffer.name)
        if before is None:
            self.accesses[buffer.name] = AccessInterval(lowest, highest, not write, write)
            return
        known = before.writes if write else before.reads
        if known and before.lowest <= lowest and highest <= before.highest:
            return
        self.accesses[buffer.name] = AccessInterval(
            min(before.lowest, lowest), max(before.highest, highest),
            before.reads or not write, before.writes or write,
        )

    def inside(self, buffer: Buffer, lowest: int, highest: int) -> None:
        if lowest < 0 or highest >= buffer.size:
            self.fail(
                f"index of {buffer.name}[{buffer.size}] may be anything from {lowest} to {highest}"
            )

    def word(
        self, buffer: Buffer, index: Expr, scope: _Scope, ranges: Ranges | None
    ) -> None:
        """Checks a load of four bytes of small integers, the last of which must lie in the buffer,
        too."""
        self.known(buffer)
        if buffer.dtype not in kir.WORD_PARTS:
            self.fail(f"a word of {buffer.name}'s {buffer.dtype.value}")
        self.index(buffer, index, 4 // buffer.dtype.itemsize, scope, ranges, write=False)

    def lanes(self, buffer: Buffer, type_: Scalar, count: int) -> None:
        """Checks the types of elements that become lanes of a vector, or the other way round."""
        if buffer.dtype not in kir.LANE_SOURCES.get(type_, ()):
            self.fail(f"{type_.value} of {buffer.name}'s {buffer.dtype.value}")
        if not 0 < count <= type_.lanes:
            self.fail(f"{count} lanes of {type_.value}")

    def expr(self, expr: Expr, scope: _Scope, ranges: Ranges | None) -> Scalar:
        """Checks an expression and returns its type."""
        match expr:
            case kir.Var():
                self.variable(expr, scope)
                return expr.type
            case kir.Const():
                self.constant(expr)
                self.fits(expr, ranges)
                return expr.type
            case kir.Binary():
                return self.binary(expr, scope, ranges)
            case kir.Load():
                self.known(expr.buffer)
                self.index(expr.buffer, expr.index, 1, scope, ranges, write=False)
            case kir.LoadWord():
                self.word(expr.buffer, expr.index, scope, ranges)
            case kir.LoadVector():
                self.known(expr.buffer)
                self.lanes(expr.buffer, expr.type, expr.count)
                self.index(expr.buffer, expr.index, expr.count, scope, ranges, write=False)
            case kir.Compare():
                self.arithmetic(self.expr(expr.a, scope, ranges), "a comparison")
                self.same(expr.a.type, self.expr(expr.b, scope, ranges), "a comparison")
            case kir.Select():
                self.same(_I1, self.expr(expr.condition, scope, ranges), "a condition")
                self.arithmetic(self.expr(expr.then, scope, ranges), "a select")
                self.same(expr.then.type, self.expr(expr.other, scope, ranges), "a select")
            case kir.Cast():
                self.cast(self.expr(expr.value, scope, ranges), expr.type)
                self.fits(expr, ranges)
            case kir.Call():
                self.call(expr, scope, ranges)
        return expr.type

    def fits(self, expr: kir.Binary | kir.Cast | kir.Const, ranges: Ranges | None) -> None:
        """Checks that a computed index fits the indices of a narrow processor."""
        if self.narrow is None or ranges is None or expr.type is not _INDEX:
            return
        value = expr.value if isinstance(expr, kir.Cast) else expr
        found = ranges.of(value)
        if isinstance(value, kir.Load):
            found = self.narrow.contents.get(value.buffer.name, found)
        if found is None:
            self.fail("an index is computed from a float")
        if not contains(self.narrow.top, found):
            self.fail(f"an index may be anything from {found[0]} to {found[1]}")

    def arithmetic(self, type_: Scalar, what: str) -> None:
        if type_ not in kir.ARITHMETIC:
            self.fail(f"{what} of {type_.value}")

    def constant(self, expr: kir.Const) -> None:
        value, type_ = expr.value, expr.type
        if type_.is_vector:
            self.fail(f"a constant {type_.value}")
        if type_.is_float:
            fits = isinstance(value, float)
        else:
            low, high = type_range(type_)
            fits = type(value) is int and low <= value <= high  # no bool
        if not fits:
            self.fail(f"constant {value!r} is no {type_.value}")

    def binary(self, expr: kir.Binary, scope: _Scope, ranges: Ranges | None) -> Scalar:
        type_ = self.expr(expr.a, scope, ranges)
        other = self.expr(expr.b, scope, ranges)
        if type_ is _INDEX is other:
            self.fits(expr, ranges)
            return type_
        op = expr.op
        if type_ is not other:
            self.same(type_, other, op.value)
        if type_ is _I1:
            if op not in _LOGIC:
                self.fail(f"{op.value} of i1")
        elif type_ not in kir.ARITHMETIC or (type_.is_float and op not in _ON_FLOATS):
            self.fail(f"{op.value} of {type_.value}")
        return type_

    def cast(self, source: Scalar, target: Scalar) -> None:
        """Checks a conversion: f16 is only converted from and to f32, so that nothing is rounded
        twice."""
        if target is _I1:
            self.fail("a cast to i1 (compare instead)")
        if source.is_vector or target.is_vector:
            self.fail("a cast of vectors")
        if (source is _F16 or target is _F16) and not (source is _F32 or target is _F32):
            self.fail(f"a cast from {source.value} to {target.value}")

    def call(self, expr: kir.Call, scope: _Scope, ranges: Ranges | None) -> None:
        intrinsic = find_intrinsic(expr.name)
        if intrinsic is None:
            self.fail(f"no intrinsic {expr.name!r}")
        found = tuple([self.expr(arg, scope, ranges) for arg in expr.args])
        if found != intrinsic.params or expr.type is not intrinsic.result:
            self.fail(
                f"{expr.name} is called with {[t.value for t in found]} for {expr.type.value}"
            )


class _Scope:
    """The variables in scope: their types, and the statements that define them."""

    def __init__(self, origin: dict[str, Stmt | None], types: dict[str, Scalar]) -> None:
        self.origin, self.types = origin, types

    def add(self, var: kir.Var, stmt: Stmt) -> None:
        self.origin[var.name], self.types[var.name] = stmt, var.type

    def inner(self) -> _Scope:
        return _Scope(dict(self.origin), dict(self.types))
