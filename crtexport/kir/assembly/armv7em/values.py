"""Selects the instructions that compute values.

Each writes a register of its own, but where a variable changes. Conversions, shifts and constants
become part of the instructions that use them.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.assembly.armv7em.addresses import Addresses, Linear, Outside, Symbol
from crtexport.kir.assembly.armv7em.instructions import (
    Block,
    ConstantRegister,
    Instruction,
    Kind,
    Loop,
    Register,
    UnsupportedError,
    constant,
    encodable,
)
from crtexport.kir.assembly.armv7em.patterns import (
    SHIFT,
    WORDS,
    bytes_of,
    shift_of,
    signed,
    upper_of_product,
)
from crtexport.kir.assembly.armv7em.spellings import CALLS, LOADS, Features
from crtexport.kir.builder import add
from crtexport.kir.language import NEGATED, BinaryOp, CompareOp, Expr, Scalar

_INDEX, _I32 = Scalar.INDEX, Scalar.I32
NARROW = (Scalar.I8, Scalar.U8, Scalar.I16, Scalar.U16)
_EXTEND = {Scalar.I8: "sxtb", Scalar.U8: "uxtb", Scalar.I16: "sxth", Scalar.U16: "uxth"}
_ADDS = (BinaryOp.ADD, BinaryOp.WRAP_ADD)
_SUBS = (BinaryOp.SUB, BinaryOp.WRAP_SUB)
_MULS = (BinaryOp.MUL, BinaryOp.WRAP_MUL)
_LOGIC = {BinaryOp.AND: "and", BinaryOp.OR: "orr", BinaryOp.XOR: "eor"}
_OPAQUE = (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.DIV)
"""Operations whose results indices aren't sums of."""
_WORSE = {BinaryOp.MIN: ("gt", "hi"), BinaryOp.MAX: ("lt", "lo")}
"""The conditions under which the other operand is the result, signed and unsigned."""
_CONDITIONS = {
    CompareOp.EQ: ("eq", "eq"), CompareOp.NE: ("ne", "ne"), CompareOp.LT: ("lt", "lo"),
    CompareOp.LE: ("le", "ls"), CompareOp.GT: ("gt", "hi"), CompareOp.GE: ("ge", "hs"),
}

_PACKED = "arm_pkhbt"
"""The intrinsic that moves its last operand to the upper half anyway."""
_HALF = 16
"""The bits of a half of a word."""


class _Shifted(Struct, frozen=True):
    """An operand that is a register and, behind it, what is done to it."""

    register: Register
    how: str


_Operand = Register | _Shifted | str
"""A register, that and a shift, or a constant's text."""


class Values:
    """Emits what computes values, in the innermost of ``loops``."""

    def __init__(self, features: Features, uses: Counter[str]) -> None:
        self.features, self.uses = features, uses
        self.addresses = Addresses()
        self.loops = [self.addresses.root]
        # Values by the names of variables: indices as sums, all else in registers.
        self.sums: dict[str, Linear] = {}
        self.values: dict[str, Register] = {}
        self.narrow: set[str] = set()  # variables whose upper bits aren't those of their type
        self.changing: set[str] = set()
        self.made_in: dict[Register, Block] = {}
        self.loaded: dict[Block, dict[object, Register]] = {}  # from what is only read
        self.quotients: dict[Block, dict[object, Register]] = {}

    # ---- indices

    def sum(self, expr: Expr) -> Linear:
        """Returns an index as a sum of symbols with factors. Raises UnsupportedError for one that
        changes."""
        match expr:
            case kir.Const():
                return Linear(constant=int(expr.value))
            case kir.Var():
                if expr.name in self.sums:
                    return self.sums[expr.name]
                if expr.name in self.values:
                    raise UnsupportedError("an index that changes")
                return Linear(((expr, 1),))
            case kir.Binary(op=BinaryOp.ADD):
                return self.sum(expr.a).plus(self.sum(expr.b))
            case kir.Binary(op=BinaryOp.SUB):
                return self.sum(expr.a).plus(self.sum(expr.b), -1)
            case kir.Binary(op=BinaryOp.MUL, b=kir.Const(value=value)):
                return self.sum(expr.a).times(int(value))
            case kir.Binary(op=BinaryOp.DIV, a=dividend, b=kir.Const()):
                return Linear(((self._quotient(self.sum(dividend), expr.b), 1),))
            case _:
                register = self._operation(expr, None)
                return Linear(((register, 1),))

    def _quotient(self, dividend: Linear, divisor: Expr) -> Symbol:
        """Returns the quotient of an index, which is computed outside if all of the index is from
        there."""
        if all(isinstance(one, Outside) for one, _ in dividend.terms):
            outside = self.addresses.outside(dividend.terms)
            index = add(outside, kir.Const(dividend.constant, _INDEX))
            return kir.Binary(BinaryOp.DIV, index, divisor)
        known = self.quotients.setdefault(self.loops[-1].block, {})
        key = dividend, divisor
        if key not in known:
            known[key] = self._divided(self._materialized(dividend, None), divisor, None)
        return known[key]

    def _divided(self, dividend: Register, divisor: Expr, into: Register | None) -> Register:
        """Emits the quotient of signed words, toward 0. Returns its register, ``into`` if that
        isn't None."""
        match divisor:
            case kir.Const(value=value) if int(value) > 1 and not int(value) & int(value) - 1:
                shift = int(value).bit_length() - 1
                sign = self._make("asr", None, dividend, "#31")
                # One less than the divisor is added to what is negative.
                raised = self._make("add", None, dividend, _Shifted(sign, f"lsr #{32 - shift}"))
                return self._make("asr", into, raised, f"#{shift}")
            case _:
                return self._make(
                    "sdiv", into, dividend, self.value(divisor), kind=Kind.DIVIDE
                )

    def _materialized(self, index: Linear, into: Register | None) -> Register:
        """Emits the value of an index. Returns its register, ``into`` if that isn't None."""
        terms = sorted(index.terms, key=lambda term: term[1] != 1)
        result: Register | None = None
        for symbol, times in terms:
            value = (
                self.addresses.iteration(symbol) if isinstance(symbol, Loop)
                else self.addresses.argument("", symbol) if isinstance(symbol, Outside)
                else symbol
            )
            result = self._scaled(result, value, times)
        if result is None:
            return self._constant(index.constant)
        if not index.constant:
            return result
        return self._plus(result, index.constant, into)

    def _plus(self, value: Register, amount: int, into: Register | None) -> Register:
        """Returns ``value`` plus a number."""
        if amount < 0 and encodable(-amount):
            return self._make("sub", into, value, f"#{-amount}")
        return self._make("add", into, value, self._operand_of(amount))

    def _scaled(self, base: Register | None, value: Register, times: int) -> Register:
        """Returns ``base`` plus so many times ``value``."""
        shift = abs(times).bit_length() - 1
        power = abs(times) == 1 << shift
        if base is None and times == 1:
            return value
        if base is None and power and times > 0:
            return self._make("lsl", None, value, f"#{shift}")
        if base is not None and power:
            moved = _Shifted(value, f"lsl #{shift}") if shift else value
            return self._make("add" if times > 0 else "sub", None, base, moved)
        factor = self._constant(times)
        if base is None:
            return self._make("mul", None, value, factor, kind=Kind.MULTIPLY)
        return self._make("mla", None, value, factor, base, kind=Kind.ACCUMULATE, adds=base)

    # ---- values

    def value(self, expr: Expr, into: Register | None = None, *, narrow: bool = False) -> Register:
        """Emits a value. Returns its register, ``into`` if that isn't None. ``narrow``: bits above
        those of its type don't matter."""
        found = self._found(expr, into)
        if self._is_narrow(expr) and not narrow:
            return self._make(_EXTEND[expr.type], into, found)
        return found if into is None or found is into else self._make("mov", into, found)

    def _is_narrow(self, expr: Expr) -> bool:
        """Returns whether a value is found with other bits above than its type says."""
        match expr:
            case kir.Var():
                return expr.name in self.narrow
            case kir.Cast(value=inner, type=type_):
                return type_ in NARROW and bytes_of(inner.type) > bytes_of(type_)
            case _:
                return False

    def _found(self, expr: Expr, into: Register | None) -> Register:
        match expr:
            case kir.Const():
                if expr.type not in (*WORDS, *NARROW):
                    raise UnsupportedError(f"a constant of {expr.type.value}")
                return self._constant(int(expr.value))
            case kir.Var():
                return self._named(expr, into)
            case kir.Binary(op=op) if expr.type is _INDEX and op not in _OPAQUE:
                return self._materialized(self.sum(expr), into)
            case _:
                return self._operation(expr, into)

    def _named(self, var: kir.Var, into: Register | None) -> Register:
        if var.name in self.values:
            return self.values[var.name]
        if var.name in self.sums:
            return self._materialized(self.sums[var.name], into)
        if var.type not in WORDS:
            raise UnsupportedError(f"a variable of {var.type.value}")
        return self.addresses.argument("", var)

    def _operation(self, expr: Expr, into: Register | None) -> Register:
        match expr:
            case kir.Binary():
                return self._binary(expr, into)
            case kir.Load() | kir.LoadWord():
                return self._load(expr, into)
            case kir.Cast():
                return self._cast(expr, into)
            case kir.Call():
                return self._call(expr, into)
            case kir.Select(condition=kir.Compare() as condition):
                return self._selection(expr, condition, into)
            case _:
                raise UnsupportedError(type(expr).__name__)

    def _load(self, expr: kir.Load | kir.LoadWord, into: Register | None) -> Register:
        name, size = ("ldr", 4) if isinstance(expr, kir.LoadWord) else LOADS.get(
            expr.buffer.dtype, ("", 0)
        )
        if not name:
            raise UnsupportedError(f"a load of {expr.buffer.dtype.value}")
        memory = self.addresses.memory(expr.buffer, self.sum(expr.index), size, self.loops)
        known = self.loaded.setdefault(self.loops[-1].block, {})
        key = memory.place, memory.distance, name
        again = into is None and not expr.buffer.writable
        if again and key in known:
            return known[key]
        result = into or Register("value")
        if again:
            known[key] = result
        self._emit(Instruction(
            f"{name} {{w}}, [{{base}}, #{{at}}]", (result,), (), Kind.LOAD, memory
        ))
        return result

    def _cast(self, expr: kir.Cast, into: Register | None) -> Register:
        source, type_ = expr.value.type, expr.type
        if (upper := upper_of_product(expr)) is not None:
            return self._upper(*upper, into)
        if source not in (*WORDS, *NARROW) or type_ not in (*WORDS, *NARROW):
            raise UnsupportedError(f"a cast of {source.value} to {type_.value}")
        return self.value(expr.value, into, narrow=type_ in NARROW)

    def _upper(
        self, a: Expr, b: Expr, rounded: bool, into: Register | None
    ) -> Register:
        """Emits the upper word of a product of 64 bits, rounded or not. Returns its register."""
        if self.features.dsp:
            name = "smmulr" if rounded else "smmul"
            return self._make(name, into, self.value(a), self.value(b), kind=Kind.MULTIPLY)
        low, high = Register("low"), Register("high")
        factors = self.value(a), self.value(b)
        self._emit(Instruction("smull {w}, {v}, {0}, {1}", (low, high), factors, Kind.LONG))
        if not rounded:
            return high
        return self._make("add", into, high, _Shifted(low, "lsr #31"))

    def _call(self, expr: kir.Call, into: Register | None) -> Register:
        spelling = CALLS.get(expr.name)
        if spelling is None or not self.features.dsp:
            raise UnsupportedError(expr.name)
        *args, last = expr.args
        values: list[_Operand] = [self.value(arg) for arg in args]
        if spelling.alone and last == kir.Const(0, last.type):
            return self._make(spelling.alone, into, *values, kind=spelling.kind)
        behind = spelling.behind
        match last:
            case kir.Binary(op=BinaryOp.SHL, a=whole, b=kir.Const(value=count)) if (
                expr.name == _PACKED and count < _HALF
            ):
                last, behind = whole, f"lsl #{_HALF + int(count)}"
            case _:
                pass
        final = self.value(last)
        values.append(_Shifted(final, behind) if behind else final)
        return self._make(
            spelling.name, into, *values, kind=spelling.kind,
            adds=final if spelling.alone else None, narrow_name=spelling.alone,
        )

    def _selection(
        self, expr: kir.Select, condition: kir.Compare, into: Register | None
    ) -> Register:
        code = _CONDITIONS[condition.op][condition.a.type is Scalar.U32]
        left, right = self.value(condition.a), self._operand(condition.b)
        then = self._operand(expr.then, shifted=False)
        used = (one.register if isinstance(one, _Shifted) else one for one in (left, right, then))
        if any(one is into for one in used):
            into = None
        return self._moved(code, (left, right), self._own(expr.other, into), then)

    def test(self, compare: kir.Compare) -> tuple[Instruction, str]:
        """Returns a comparison, and the condition under which it does not hold."""
        reads: list[Register] = []
        left = self._text(self.value(compare.a), reads)
        right = self._text(self._operand(compare.b), reads)
        code = _CONDITIONS[NEGATED[compare.op]][compare.a.type is Scalar.U32]
        return Instruction(f"cmp {left}, {right}", (), tuple(reads)), code

    # ---- operations

    def _binary(self, expr: kir.Binary, into: Register | None) -> Register:
        op, a, b, type_ = expr.op, expr.a, expr.b, expr.type
        if type_ not in WORDS:
            raise UnsupportedError(f"{op.value} of {type_.value}")
        if op in _ADDS:
            return self._addition(a, b, into)
        if op in _SUBS:
            return self._subtraction(a, b, into)
        if op in _MULS:
            return self._product(a, b, into)
        if op is BinaryOp.MIN and (found := self._saturated(expr, into)) is not None:
            return found
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            code = _WORSE[op][type_ is Scalar.U32]
            other = self._operand(b, shifted=False)
            result = self._own(a, None if other is into else into)
            return self._moved(code, (result, other), result, other)
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            name = "lsl" if op is BinaryOp.SHL else SHIFT[type_ is not Scalar.U32]
            by = f"#{b.value}" if isinstance(b, kir.Const) else self.value(b)
            return self._make(name, into, self.value(a), by)
        if op in _LOGIC:
            return self._make(_LOGIC[op], into, self.value(a), self._operand(b))
        if op is BinaryOp.DIV:
            if type_ is not Scalar.U32:
                return self._divided(self.value(a), b, into)
            return self._make("udiv", into, self.value(a), self.value(b), kind=Kind.DIVIDE)
        raise UnsupportedError(op.value)

    def _addition(self, a: Expr, b: Expr, into: Register | None) -> Register:
        for total, product in ((a, b), (b, a)):
            if isinstance(product, kir.Binary) and product.op in _MULS and not isinstance(
                product.b, kir.Const
            ):
                factors = self.value(product.a), self.value(product.b)
                base = self.value(total)
                return self._make(
                    "mla", into, *factors, base, kind=Kind.ACCUMULATE, adds=base, narrow_name="mul"
                )
        if shift_of(a) is not None or isinstance(a, kir.Const):
            a, b = b, a
        if isinstance(b, kir.Const):
            return self._plus(self.value(a), int(b.value), into)
        return self._make("add", into, self.value(a), self._operand(b))

    def _subtraction(self, a: Expr, b: Expr, into: Register | None) -> Register:
        if isinstance(a, kir.Const) and encodable(int(a.value)):
            return self._make("rsb", into, self.value(b), f"#{a.value}")
        if isinstance(b, kir.Const):
            return self._plus(self.value(a), -int(b.value), into)
        return self._make("sub", into, self.value(a), self._operand(b))

    def _product(self, a: Expr, b: Expr, into: Register | None) -> Register:
        if isinstance(b, kir.Const) and int(b.value) > 0 and not b.value & (b.value - 1):  # type: ignore[operator]
            shift = int(b.value).bit_length() - 1
            return self._make("lsl", into, self.value(a), f"#{shift}")
        return self._make("mul", into, self.value(a), self.value(b), kind=Kind.MULTIPLY)

    def _saturated(self, expr: kir.Binary, into: Register | None) -> Register | None:
        """Emits SSAT or USAT. Returns its register; None where the limits aren't those of these."""
        inner = expr.a
        if not (isinstance(inner, kir.Binary) and inner.op is BinaryOp.MAX):
            return None
        if not (isinstance(inner.b, kir.Const) and isinstance(expr.b, kir.Const)):
            return None
        low, top = int(inner.b.value), int(expr.b.value)
        if expr.type is Scalar.U32 or (top + 1) & top or top < 0:
            return None
        bits = (top + 1).bit_length() - 1
        if low not in (0, -top - 1):
            return None
        name, bits = ("usat", bits) if low == 0 else ("ssat", bits + 1)
        shift = shift_of(inner.a)
        operand: _Operand = (
            self.value(inner.a) if shift is None or shift[1].startswith("lsr")
            else _Shifted(self.value(shift[0]), shift[1])
        )
        return self._make(name, into, f"#{bits}", operand)

    def _operand(self, expr: Expr, *, shifted: bool = True) -> _Operand:
        """Returns what may be the last operand: a constant, a register, or one that is shifted."""
        if isinstance(expr, kir.Const):
            return self._operand_of(int(expr.value))
        if shifted and (found := shift_of(expr)) is not None:
            value, how = found
            return _Shifted(self.value(value), how)
        return self.value(expr)

    def _operand_of(self, value: int) -> _Operand:
        if encodable(value):
            return f"#{signed(value)}"
        return self._constant(value)

    # ---- emission

    def _constant(self, value: int) -> Register:
        return ConstantRegister("constant", value=signed(value))

    def _own(self, expr: Expr, into: Register | None) -> Register:
        """Returns a value in a register that may be changed."""
        found = self.value(expr, into)
        fresh = not isinstance(expr, kir.Var) or (
            self.uses[expr.name] == 1 and expr.name not in self.changing
        )
        block = self.loops[-1].block
        here = self.made_in.get(found) is block and (
            found not in self.loaded.get(block, {}).values()
        )
        if found is into or (into is None and fresh and here):
            return found
        return self._make("mov", into, found)

    def _moved(
        self, code: str, compared: tuple[_Operand, _Operand], result: Register, other: _Operand
    ) -> Register:
        """Lets ``result`` be ``other`` where ``code`` holds of what is compared."""
        reads: list[Register] = []
        left, right, moved = (self._text(one, reads) for one in (*compared, other))
        own = self._text(result, reads)
        text = f"cmp {left}, {right}\nit {code}\nmov{code} {own}, {moved}"
        self._emit(Instruction(text, (result,), tuple(reads), count=3))
        return result

    def _make(
        self, name: str, into: Register | None, *operands: _Operand,
        kind: Kind = Kind.SIMPLE, adds: Register | None = None, narrow_name: str = "",
    ) -> Register:
        """Emits an instruction with one result."""
        result, reads = into or Register("value"), list[Register]()
        if name == "mov" and isinstance(operands[0], ConstantRegister):
            self._emit(constant(result, operands[0].value))
            return result
        texts = [self._text(one, reads) for one in operands]
        text = f"{name} {{w}}, {', '.join(texts)}"
        short = f"{narrow_name} {{w}}, {', '.join(texts[:-1])}" if narrow_name else ""
        self._emit(Instruction(text, (result,), tuple(reads), kind, None, adds, short))
        return result

    @staticmethod
    def _text(operand: _Operand, reads: list[Register]) -> str:
        """Returns the text of an operand, whose register is added to those that are read."""
        if isinstance(operand, str):
            return operand
        reads.append(operand.register if isinstance(operand, _Shifted) else operand)
        number = f"{{{len(reads) - 1}}}"
        return f"{number}, {operand.how}" if isinstance(operand, _Shifted) else number

    def _emit(self, instruction: Instruction) -> None:
        block = self.loops[-1].block
        block.body.append(instruction)
        for register in instruction.writes:
            self.made_in[register] = block
            self.addresses.home_of.setdefault(register, self.loops[-1])
