"""Instructions for a loop in Kernel IR: one iteration, in the order of its text.

Loops in it whose extents are known are written out. Loads and vectors of one number are no
instructions yet: the schedule makes one where a value is read, and another where it is read
again much later. What isn't affine, or has no instruction, refuses the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from crtexport.kir import language as kir
from crtexport.kir.assembly.mve.addresses import Base, Place, affine, multiple
from crtexport.kir.assembly.mve.arrange import arrange
from crtexport.kir.assembly.mve.body import NONE, Body, MveOp, UnsupportedLoopError, VectorLoad
from crtexport.kir.assembly.mve.instructions import (
    ACCESSES,
    FORMS,
    STORES,
    Bank,
    Form,
    VectorAccess,
)
from crtexport.kir.assembly.mve.patterns import DUPS, clamp_of, shift_of
from crtexport.kir.language import Buffer, Expr, Scalar, Stmt
from crtexport.kir.walk import map_operands, walk_expr

_BYTES = (-128, 127)
_HALVES = (-32768, 32767)
_LIMITS = {Scalar.I8: _BYTES, Scalar.I16: _HALVES}
_ADDITION = "mve_add_s32"


def select(
    loop: kir.For, definitions: Mapping[str, Expr], outer: kir.For | None = None
) -> Body:
    """Returns the instructions of an iteration of ``loop``, which is all that a loop ``outer``
    does; ``definitions``: the values of Lets around both. Raises UnsupportedLoopError."""
    selector = _LoopSelector(loop, definitions, outer)
    for stmt in loop.body:
        selector.statement(stmt)
    body = selector.body
    if not body.ops:
        raise UnsupportedLoopError("nothing to do")
    stored = {body.bases[op.place.base].buffer for op in body.ops if op.place is not None}
    if any(body.bases[load.place.base].buffer in stored for load in body.loads.values()):
        raise UnsupportedLoopError("a buffer is stored to and loaded from")
    arrange(body)
    return body


class _LoopSelector:
    def __init__(
        self, loop: kir.For, definitions: Mapping[str, Expr], outer: kir.For | None
    ) -> None:
        self.loop, self.outer, self.definitions = loop, outer, definitions
        self._changing = {loop.var.name}
        if outer is not None:
            lets = {s.var.name: s.value for s in outer.body if isinstance(s, kir.Let)}
            self.definitions = {**definitions, **lets}
            self._changing |= {outer.var.name, *lets}
        self.body = Body()
        self._lets: dict[str, Expr] = {}  # of the body, not computed yet
        self._locals: dict[str, int] = {}  # values of accumulators; NONE is 0
        self._values: dict[Expr, int] = {}
        self._loads: dict[tuple[Place, VectorAccess], int] = {}
        self._dups: dict[tuple[Form, int], int] = {}
        self._numbers: dict[Expr, int] = {}
        self._bases: dict[tuple[str, frozenset[tuple[Expr, int]]], int] = {}
        self._forms: dict[str, Callable[[kir.Call], int]] = {
            "mve_lanes_s32": self._lanes, "mve_mladava_s8": self._dot,
            "mve_mladava_s16": self._dot, "mve_narrow_s32": self._narrow,
            "mve_narrow_s16": self._narrow, "mve_rshl_s32": self._shift,
            "mve_sign_s32": self._sign, "mve_mlas_s16": self._multiply_add,
            "mve_as_f32": lambda call: self.vector(call.args[0]),
            "mve_words_s16": lambda call: self.vector(call.args[0]),
            "mve_upper_s32": lambda call: self._by_half("shr_u32", call),
            "mve_raised_s32": lambda call: self._by_half("shl_s32", call),
        }

    # ---- statements

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case kir.Let(var=var, value=value):
                self._name(var.name, self._here(value))
                if isinstance(value, kir.Call) and value.name == _ADDITION:
                    self.vector(var)  # here, so that the registers of what is added are free
            case kir.Local(var=var, value=kir.Const(value=0)) if var.type is Scalar.I32:
                self._locals[var.name] = NONE
            case kir.Assign(var=var, value=kir.Call() as call) if var.name in self._locals:
                self._locals[var.name] = self._dot(call)
            case kir.For(var=var, extent=kir.Const(value=extent), body=inner) if (
                stmt.unroll == extent
            ):
                for turn in range(int(extent)):
                    self._name(var.name, kir.Const(turn, Scalar.INDEX))
                    for each in inner:
                        self.statement(each)
            case kir.StoreVector():
                self._store(stmt)
            case kir.Comment():
                pass
            case _:
                raise UnsupportedLoopError(f"a {type(stmt).__name__}")

    def _name(self, name: str, value: Expr) -> None:
        if self._lets.get(name, value) != value:
            self._values.clear()  # loops that are written out give names anew
        self._lets[name] = value

    def _here(self, expr: Expr) -> Expr:
        """Returns ``expr`` with the current values of its indices."""
        match expr:
            case kir.Var(type=Scalar.INDEX):
                return self._lets.get(expr.name, expr)
            case kir.Const() | kir.Var():
                return expr
            case _:
                return map_operands(expr, self._here)

    def _store(self, stmt: kir.StoreVector) -> None:
        type_ = stmt.value.type
        part = 0 if stmt.count == type_.lanes else stmt.count
        if part:
            some = part, type_.lane.itemsize
            if self.body.some not in (None, some):
                raise UnsupportedLoopError("stores of different numbers of lanes")
            self.body.some = some
        access = STORES.get((type_.value, stmt.buffer.dtype.value))
        if access is None:
            raise UnsupportedLoopError("a store of another type")
        place = self._place(stmt.buffer, stmt.index)
        value = self._saturated(stmt.value, stmt.buffer.dtype)
        if self.body.banks[value] is not Bank.VECTOR:
            raise UnsupportedLoopError("a store of no vector")
        self.body.ops.append(MveOp(access, NONE, (), part, place, value))

    def _saturated(self, expr: Expr, element: Scalar) -> int:
        """Returns the value to store. Clamps to the element's limits are left to narrowing."""
        expr = self._known(expr)
        limits = _LIMITS.get(element)
        found = clamp_of(expr, self._known)
        if expr.type.lane is element or limits is None or found is None:
            return self.vector(expr)
        value, low, high = found
        if low > limits[0]:
            value = self._extreme("max", value, low)
        if high < limits[1]:
            value = self._extreme("min", value, high)
        if expr.type is not Scalar.I32X4:
            return self.body.emit(FORMS["narrow_b_s16"], (NONE, self.vector(value)))
        result = self._half("b", NONE, value)
        if element is Scalar.I16:
            return result
        return self.body.emit(FORMS["narrow_b_s16"], (NONE, result))

    @staticmethod
    def _extreme(op: str, value: Expr, bound: int) -> Expr:
        suffix = f"s{8 * value.type.lane.itemsize}"
        limit = kir.Call(f"mve_dup_{suffix}", (kir.Const(bound, Scalar.I32),), value.type)
        return kir.Call(f"mve_{op}_{suffix}", (value, limit), value.type)

    # ---- values

    def _known(self, expr: Expr) -> Expr:
        """Returns ``expr``, or the value that its name stands for."""
        while isinstance(expr, kir.Var) and expr.name in self._lets:
            expr = self._lets[expr.name]
        return expr

    def vector(self, expr: Expr) -> int:
        """Returns the value of an expression in a vector."""
        expr = self._known(expr)
        if expr in self._values:
            return self._values[expr]
        match expr:
            case kir.LoadVector():
                value = self._load(expr)
            case kir.Call():
                value = self._call(expr)
            case _:
                raise UnsupportedLoopError(f"a {type(expr).__name__}")
        self._values[expr] = value
        return value

    def _load(self, expr: kir.LoadVector) -> int:
        access = ACCESSES.get((expr.type.value, expr.buffer.dtype.value))
        if access is None or expr.count != expr.type.lanes:
            raise UnsupportedLoopError("a load of some lanes or another type")
        place = self._place(expr.buffer, expr.index)
        if access.size == 1 and not access.low:  # any bytes may be words
            for type_, element in (("i32x4", "i32"), ("i16x8", "i16")):
                wider = ACCESSES[type_, element]
                if place.align % wider.size == 0:
                    access = wider
                    break
        elif place.align % access.size:
            raise UnsupportedLoopError("an address that isn't aligned")
        key = place, access
        if key not in self._loads:
            self._loads[key] = value = self.body.fresh(Bank.VECTOR)
            self.body.loads[value] = VectorLoad(access, place)
        return self._loads[key]

    def _call(self, call: kir.Call) -> int:
        return self._forms.get(call.name, self._plain)(call)

    def _plain(self, call: kir.Call) -> int:
        name = call.name
        if name in DUPS:
            return self._dup(FORMS[DUPS[name]], call.args[0])
        short = name.removeprefix("mve_")
        if f"{(parts := short.rpartition('_'))[0]}_n_{parts[2]}" in FORMS:
            scalar = self._by_scalar(call, FORMS[f"{parts[0]}_n_{parts[2]}"])
            if scalar is not None:
                return scalar
        form = FORMS.get(short)
        if form is None or form.tied or len(form.fields) != len(call.args) + 1:
            raise UnsupportedLoopError(f"a call of {name}")
        return self.body.emit(form, [self.vector(arg) for arg in call.args])

    def _by_scalar(self, call: kir.Call, form: Form) -> int | None:
        """Emits an operation with a vector of one number, which a general register holds. Returns
        its value; None where there is no such instruction."""
        for one, last in (call.args, call.args[::-1]):
            other = self._known(last)
            if isinstance(other, kir.Call) and other.name in DUPS:
                return self.body.emit(form, (self.vector(one), self._number(other.args[0])))
        return None

    def _dup(self, form: Form, number: Expr) -> int:
        key = form, self._number(number)
        if key not in self._dups:
            self._dups[key] = value = self.body.fresh(Bank.VECTOR)
            self.body.dups[value] = key
        return self._dups[key]

    def _number(self, expr: Expr) -> int:
        """Returns the value of a number that is the same in all iterations."""
        expr = self._inlined(expr)
        if expr not in self._numbers:
            self._refuse_variables(expr)
            self._numbers[expr] = value = self.body.fresh(Bank.GENERAL)
            if isinstance(expr, kir.Const):
                self.body.scalars[value] = int(expr.value)
            else:
                self.body.scalars[value] = None
                self.body.numbers.append(expr)
        return self._numbers[expr]

    # ---- operations that are no single instruction

    def _accumulator(self, expr: Expr) -> int:
        if isinstance(expr, kir.Var) and expr.name in self._locals:
            return self._locals[expr.name]
        if isinstance(expr, kir.Const) and expr.value == 0:
            return NONE
        raise UnsupportedLoopError("a sum that begins elsewhere")

    def _dot(self, call: kir.Call) -> int:
        suffix = {"mve_mladava_s8": "s8", "mve_mladava_s16": "s16"}.get(call.name)
        if suffix is None:
            raise UnsupportedLoopError(f"a sum by {call.name}")
        acc = self._accumulator(call.args[0])
        a, b = self.vector(self._here(call.args[1])), self.vector(self._here(call.args[2]))
        if acc == NONE:
            return self.body.emit(FORMS[f"dot_{suffix}"], (a, b))
        return self.body.emit(FORMS[f"dot_add_{suffix}"], (acc, a, b))

    def _lanes(self, call: kir.Call) -> int:
        sums = [self._accumulator(self._known(arg)) for arg in call.args]
        if NONE in sums:
            raise UnsupportedLoopError("lanes of constants")
        first = self.body.emit(FORMS["set_02"], (sums[0], sums[2]))
        return self.body.emit(FORMS["set_13"], (first, sums[1], sums[3]))

    def _narrow(self, call: kir.Call) -> int:
        suffix = call.name[-3:]
        if suffix == "s32":
            return self._half("t", self._half("b", NONE, call.args[0]), call.args[1])
        low, high = (self.vector(arg) for arg in call.args)
        first = self.body.emit(FORMS[f"narrow_b_{suffix}"], (NONE, low))
        return self.body.emit(FORMS[f"narrow_t_{suffix}"], (first, high))

    def _half(self, letter: str, into: int, expr: Expr) -> int:
        """Words as even (b) or odd (t) lanes of halves; a shift to the right before is included."""
        shift = shift_of(expr, self._known)
        if shift is None:
            return self.body.emit(FORMS[f"narrow_{letter}_s32"], (into, self.vector(expr)))
        value, count = shift
        form = FORMS[f"shift_narrow_{letter}_s32"]
        return self.body.emit(form, (into, self.vector(value)), count)

    def _own(self, loaded: int) -> int:
        """A loaded value in a register that may be changed."""
        own = self.body.fresh(Bank.VECTOR)
        self.body.loads[own] = self.body.loads[loaded]
        self.body.consumed.add(own)
        return own

    def _multiply_add(self, call: kir.Call) -> int:
        """Emits a product plus a number, in the register that the first value was loaded to.
        Returns its value."""
        first = self.vector(call.args[0])
        if first not in self.body.loads:
            raise UnsupportedLoopError("a product of what isn't loaded")
        args = self._own(first), self.vector(call.args[1]), self._number(call.args[2])
        return self.body.emit(FORMS["mlas_s16"], args)

    def _by_half(self, form: str, call: kir.Call) -> int:
        return self.body.emit(FORMS[form], (self.vector(call.args[0]),), 16)

    def _sign(self, call: kir.Call) -> int:
        return self.body.emit(FORMS["shr_s32"], (self.vector(call.args[0]),), 31)

    def _shift(self, call: kir.Call) -> int:
        by = self._known(call.args[1])
        alone = isinstance(call.args[0], kir.Call) and call.args[0] not in self._values
        value = self.vector(call.args[0])
        if not isinstance(by, kir.Call) or by.name != "mve_dup_s32":
            return self.body.emit(FORMS["rshl_s32"], (value, self.vector(by)))
        count = self._inlined(by.args[0])
        if not isinstance(count, kir.Const):
            if alone:  # nothing else reads the value, whose register changes
                return self.body.emit(FORMS["rshl_n_s32"], (value, self._number(count)))
            return self.body.emit(FORMS["rshl_s32"], (value, self.vector(by)))
        number = int(count.value)
        if number == 0:
            return value
        if -32 <= number < 0:
            return self.body.emit(FORMS["rshr_s32"], (value,), -number)
        return self.body.emit(FORMS["shl_s32"], (value,), number)

    # ---- addresses

    def _inlined(self, expr: Expr) -> Expr:
        """Returns ``expr`` with the values of the names that the body defines."""
        match expr:
            case kir.Var(name=name):
                return self._inlined(self._lets[name]) if name in self._lets else expr
            case kir.Const():
                return expr
            case _:
                return map_operands(expr, self._inlined)

    def _refuse_variables(self, expr: Expr) -> None:
        for part in walk_expr(expr):
            if isinstance(part, kir.Reading) or (isinstance(part, kir.Var) and (
                part.name in self._changing or part.name in self._locals
            )):
                raise UnsupportedLoopError("a number that iterations change")

    def _place(self, buffer: Buffer, index: Expr) -> Place:
        size = buffer.dtype.itemsize
        terms, constant = affine(self._inlined(index), self.definitions)
        step, outer, base = 0, 0, dict[Expr, int]()
        for term, factor in terms:
            if term == self.loop.var:
                step += factor
                continue
            if self.outer is not None and term == self.outer.var:
                outer += factor
                continue
            self._refuse_variables(term)
            base[term] = base.get(term, 0) + factor
        kept = tuple((term, factor) for term, factor in base.items() if factor)
        key = buffer.name, frozenset(kept)
        if key not in self._bases:
            self._bases[key] = len(self.body.bases)
            self.body.bases.append(Base(buffer.name, kept, size))
        align = multiple([(t, f * size) for t, f in kept], self.definitions)
        return Place(
            self._bases[key], step * size, outer * size, constant * size,
            math.gcd(buffer.align, align, step * size, outer * size, constant * size),
        )
