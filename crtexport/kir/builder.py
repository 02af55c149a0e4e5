"""Building kernels: expression helpers that fold constants, and a builder for statements.

Folding (0, 1, constants, ``x - -3``) happens here, once, so that the printers stay plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from crtexport.kir import language as kir
from crtexport.kir.language import BinaryOp, Body, Buffer, CompareOp, Expr, Kernel, Scalar, Stmt

# Enum finds its members slowly; these are wanted for each expression of each kernel.
_I1, _I32, _I64, _INDEX = Scalar.I1, Scalar.I32, Scalar.I64, Scalar.INDEX
_ADD, _SUB, _MUL, _AND = BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.AND
_LESS_NOTHING = (BinaryOp.SUB, BinaryOp.SHL, BinaryOp.SHR)
_WORDS = (_INDEX, _I32)


def const(value: int | float, type_: Scalar = _INDEX) -> kir.Const:
    """Returns a constant; integers for integer types, floats for float types."""
    return kir.Const(float(value) if type_.is_float else int(value), type_)


def i32(value: int) -> kir.Const:
    return kir.Const(int(value), _I32)


def f32(value: float) -> kir.Const:
    return kir.Const(float(value), Scalar.F32)


def _binary(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    if not isinstance(a, kir.Const) and not isinstance(b, kir.Const):
        return kir.Binary(op, a, b)
    folded = _fold(op, a, b)
    return folded if folded is not None else kir.Binary(op, a, b)


def _fold(op: BinaryOp, a: Expr, b: Expr) -> Expr | None:
    """Integer identities and constant index arithmetic; floats are left alone."""
    type_ = a.type if isinstance(a, kir.Const) else b.type
    x = a.value if isinstance(a, kir.Const) else None
    y = b.value if isinstance(b, kir.Const) else None
    if type_.is_float:
        return None
    if op is _ADD:
        if x == 0:
            return b
        if y == 0:
            return a
    elif op in _LESS_NOTHING:
        if y == 0:
            return a
    elif op is _MUL or (op is _AND and type_ is _I1):
        if x == 0 or y == 0:
            return kir.Const(0, type_)
        if x == 1:
            return b
        if y == 1:
            return a
    else:
        return None
    if x is not None and y is not None and type_ in _WORDS:
        result = _folded(op, int(x), int(y))
        if result is not None and -(1 << 31) <= result < 1 << 31:
            return kir.Const(result, type_)
    if y is not None and y < 0 and y != -(1 << 31):
        if op is _ADD:
            return kir.Binary(_SUB, a, kir.Const(-y, type_))
        if op is _SUB:
            return kir.Binary(_ADD, a, kir.Const(-y, type_))
    return None


def _folded(op: BinaryOp, x: int, y: int) -> int | None:
    if op is _ADD:
        return x + y
    if op is _SUB:
        return x - y
    return x * y if op is _MUL else None


def add(a: Expr, *rest: Expr) -> Expr:
    for b in rest:
        a = _binary(_ADD, a, b)
    return a


def sub(a: Expr, b: Expr) -> Expr:
    return _binary(_SUB, a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return _binary(_MUL, a, b)


def div(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.DIV, a, b)


def wrap_add(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.WRAP_ADD, a, b)


def wrap_sub(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.WRAP_SUB, a, b)


def wrap_mul(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.WRAP_MUL, a, b)


def and_(a: Expr, *rest: Expr) -> Expr:
    for b in rest:
        a = _binary(BinaryOp.AND, a, b)
    return a


def or_(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.OR, a, b)


def xor(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.XOR, a, b)


def shl(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.SHL, a, b)


def shr(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.SHR, a, b)


def min_(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.MIN, a, b)


def max_(a: Expr, b: Expr) -> Expr:
    return _binary(BinaryOp.MAX, a, b)


def clamp(value: Expr, low: int | float, high: int | float) -> Expr:
    """min(max(value, low), high) in the type of ``value``; infinite bounds are left out."""
    if low != float("-inf"):
        value = max_(value, const(low, value.type))
    if high != float("inf"):
        value = min_(value, const(high, value.type))
    return value


def _compare(op: CompareOp, a: Expr, b: Expr) -> Expr:
    if isinstance(a, kir.Const) and isinstance(b, kir.Const):
        x, y = a.value, b.value
        result = {
            CompareOp.EQ: x == y, CompareOp.NE: x != y, CompareOp.LT: x < y,
            CompareOp.LE: x <= y, CompareOp.GT: x > y, CompareOp.GE: x >= y,
        }[op]
        return kir.Const(int(result), Scalar.I1)
    return kir.Compare(op, a, b)


def eq(a: Expr, b: Expr) -> Expr:
    return _compare(CompareOp.EQ, a, b)


def ne(a: Expr, b: Expr) -> Expr:
    return _compare(CompareOp.NE, a, b)


def lt(a: Expr, b: Expr) -> Expr:
    return _compare(CompareOp.LT, a, b)


def le(a: Expr, b: Expr) -> Expr:
    return _compare(CompareOp.LE, a, b)


def ge(a: Expr, b: Expr) -> Expr:
    return _compare(CompareOp.GE, a, b)


def gt(a: Expr, b: Expr) -> Expr:
    return _compare(CompareOp.GT, a, b)


def select(condition: Expr, then: Expr, other: Expr) -> Expr:
    if isinstance(condition, kir.Const):
        return then if condition.value else other
    return kir.Select(condition, then, other)


def load(buffer: Buffer, index: Expr) -> kir.Load:
    return kir.Load(buffer, index)


def load_word(buffer: Buffer, index: Expr) -> kir.LoadWord:
    return kir.LoadWord(buffer, index)


def load_vector(
    buffer: Buffer, index: Expr, type_: Scalar, count: int | None = None
) -> kir.LoadVector:
    """Returns the vector at ``index``: all its lanes, or the first ``count``."""
    return kir.LoadVector(buffer, index, type_, type_.lanes if count is None else count)


def cast(value: Expr, type_: Scalar) -> Expr:
    """Returns ``value`` as ``type_``; constants are converted here when that is exact."""
    if value.type is type_:
        return value
    if isinstance(value, kir.Const) and not value.type.is_float and type_ in (
        _I32, _I64, _INDEX
    ) and -(1 << 31) <= value.value < 1 << 31:
        return kir.Const(value.value, type_)
    return kir.Cast(value, type_)


def call(name: str, *args: Expr, type_: Scalar) -> Expr:
    return kir.Call(name, tuple(args), type_)


def flat_index(indices: list[Expr], shape: tuple[int, ...]) -> Expr:
    """Returns the row-major position of ``indices`` in ``shape``, by Horner's rule."""
    position: Expr = const(0)
    for index, extent in zip(indices, shape, strict=True):
        position = add(mul(position, const(extent)), index)
    return position


class KernelBuilder:
    """Collects statements; ``with`` opens loops and branches; names are made unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._buffers: list[Buffer] = []
        self._overlapping: list[str] = []
        self._params: list[kir.Var] = []
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}  # up to which names are taken
        self._suffix = ""  # of names that are given now
        self._body: list[Stmt] = []  # of what is open, to which statements are added
        self._around: list[list[Stmt]] = []

    def _unique(self, name: str) -> str:
        candidate, count = name, self._counts.get(name, 1)
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._names.add(candidate)
        self._counts[name] = count
        return candidate

    def reserve(self, names: Iterable[str]) -> None:
        """Keeps names from being given to anything else."""
        self._names |= set(names)

    @contextmanager
    def apart(self) -> Iterator[list[Stmt]]:
        """Yields the list that collects the statements emitted meanwhile, instead of the kernel."""
        self._open()
        found = self._body
        yield found
        found[:] = self._close()

    def _open(self) -> None:
        self._around.append(self._body)
        self._body = []

    def buffer(
        self, name: str, dtype: Scalar, size: int, *, writable: bool = False,
        noalias: bool = True, align: int | None = None,
    ) -> Buffer:
        """Adds a pointer parameter. ``noalias``: nothing else that the kernel touches overlaps
        what it points to."""
        buffer = Buffer(self._unique(name), dtype, size, writable, align or dtype.itemsize)
        self._buffers.append(buffer)
        if not noalias:
            self._overlapping.append(buffer.name)
        return buffer

    def param(self, name: str, type_: Scalar) -> kir.Var:
        """Adds a scalar parameter."""
        var = kir.Var(self._unique(name), type_)
        self._params.append(var)
        return var

    @contextmanager
    def named(self, suffix: str) -> Iterator[None]:
        """Appends ``_suffix`` to the names of values and locals that are defined meanwhile, such as
        ``p1`` for the second of the pixels that are computed together."""
        outer, self._suffix = self._suffix, f"{self._suffix}_{suffix}"
        yield
        self._suffix = outer

    def let(self, name: str, value: Expr) -> Expr:
        """Names a value; constants and variables are returned unchanged."""
        if isinstance(value, kir.LEAVES):
            return value
        var = kir.Var(self._unique(name + self._suffix), value.type)
        self._body.append(kir.Let(var, value))
        return var

    def local(self, name: str, value: Expr, bits: int | None = None) -> kir.Var:
        var = kir.Var(self._unique(name + self._suffix), value.type)
        self._body.append(kir.Local(var, value, bits))
        return var

    def assign(self, var: kir.Var, value: Expr) -> None:
        self._body.append(kir.Assign(var, value))

    def store(self, buffer: Buffer, index: Expr, value: Expr) -> None:
        self._body.append(kir.Store(buffer, index, value))

    def store_vector(
        self, buffer: Buffer, index: Expr, value: Expr, count: int | None = None
    ) -> None:
        """Stores all lanes, or the first ``count``."""
        lanes = value.type.lanes if count is None else count
        self._body.append(kir.StoreVector(buffer, index, value, lanes))

    def comment(self, text: str) -> None:
        self._body.append(kir.Comment(text))

    @contextmanager
    def loop(
        self, name: str, extent: int | Expr, *, unroll: int | None = None,
        vectorize: int | None = None, assembled: bool = False,
    ) -> Iterator[Expr]:
        """A loop; yields its variable, or the constant 0 when there is only one iteration, unless
        that is ``assembled``."""
        if extent == 1 and not assembled:
            yield const(0)
            return
        var = kir.Var(self._unique(name), _INDEX)
        bound = const(extent) if isinstance(extent, int) else extent
        self._open()
        yield var
        body = self._close()
        self._body.append(kir.For(var, bound, body, unroll, vectorize, assembled))

    @contextmanager
    def if_(self, condition: Expr | None) -> Iterator[None]:
        """A branch; None means always. A constant condition leaves only the code that runs."""
        if condition is None:
            condition = kir.Const(1, Scalar.I1)
        self._open()
        yield
        then = self._close()
        self._body.append(kir.If(condition, then))

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The other branch of the If that was just closed."""
        branch = self._body.pop()
        if not isinstance(branch, kir.If):
            raise TypeError("else_ must follow if_")
        self._open()
        yield
        other = self._close()
        self._body.append(kir.If(branch.condition, branch.then, other))

    def _close(self) -> Body:
        body, self._body = self._body, self._around.pop()
        return _without_constant_branches(body)

    def finish(self, *doc: str) -> Kernel:
        return Kernel(
            self.name, tuple(self._buffers), _without_constant_branches(self._body),
            tuple(self._params), doc, tuple(self._overlapping),
        )


def _without_constant_branches(stmts: list[Stmt]) -> Body:
    """Returns ``stmts`` with each If on a constant replaced by the branch that runs."""
    if not any(isinstance(s, kir.If) and isinstance(s.condition, kir.Const) for s in stmts):
        return tuple(stmts)
    kept: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, kir.If) and isinstance(stmt.condition, kir.Const):
            kept.extend(stmt.then if stmt.condition.value else stmt.other)
        else:
            kept.append(stmt)
    return tuple(kept)
