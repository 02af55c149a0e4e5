"""Estimates a kernel's cost on a machine from its Kernel IR: instructions of a run, and code.

The walk counts what compilers leave of a kernel: addresses are pointers that advance once for each
turn of a loop, whatever is added to them for one access is part of that; what doesn't change in a
loop is computed before it; an addition of a product is one instruction, where the machine has such
a one; a value that is cast when it is loaded or stored costs nothing more. Each kind of work has
a weight for each machine, found by least squares over measured counts: ``python -m
tests.bench.costs`` measures, compares and finds them again. Where cycles are known, too, each has
another weight for these.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.assembly.armv7em.patterns import upper_of_product
from crtexport.kir.intrinsics.in_order import FREE
from crtexport.kir.language import BinaryOp, Body, Expr, Kernel, Scalar
from crtexport.kir.linear_form import linear_form, split_constant
from crtexport.kir.walk import walk
from crtexport.schedules.common.target_features import has_few_registers, is_x86_64
from crtexport.schedules.select.code_cache import LoopCode, missed_lines
from crtexport.schedules.select.likelihood import likelihood
from crtexport.support.target import Flash, Target


class Cost(Struct, frozen=True):
    """Of a kernel: instructions that a run executes, bytes of code; ``lines`` of it that are read
    again from flash in a run; ``cycles`` with memory that never waits, None where they aren't
    known."""

    instructions: int
    code: int
    lines: int = 0
    cycles: int | None = None

    @property
    def time(self) -> int:
        """Returns the cycles, or where they aren't known the instructions."""
        return self.instructions if self.cycles is None else self.cycles


class Work(enum.Enum):
    """Kinds of work that are counted."""

    __hash__ = object.__hash__  # Enum's own asks for the name's, in Python, at each count

    SIMPLE = "simple"  # additions, shifts, products, intrinsics of one instruction
    WIDE = "wide"  # the same of 64 bits
    LOAD = "load"
    STORE = "store"
    POINTER = "pointer"  # one that advances with a loop
    CHOICE = "choice"  # minimum, maximum, select
    DIVIDE = "divide"
    BRANCH = "branch"
    TURN = "turn"  # of a loop
    LOOP = "loop"  # that is begun
    SPILL = "spill"  # a value of a loop's iteration for which there is no register
    WIDENED = "widened"  # a vector whose lanes are wider than what they are loaded from
    ACCUMULATED = "accumulated"  # products among those that are simple, where adding them is one


class Machine(Struct, frozen=True):
    """``registers``: those that a loop's sums, pointers and counter can have; ``weights``:
    instructions for each kind of work; ``width``: bytes of an instruction, on average; ``doubt``:
    the part by which a variant must be better than the usual one to be taken instead; ``mla``:
    whether adding a product is one instruction; ``indexed``: whether addresses are sums of two
    registers, at no cost; ``high``: whether the upper word of a product is one instruction;
    ``cycles`` for each kind of work, empty where they aren't known."""

    registers: int
    weights: dict[Work, float]
    width: float
    doubt: float
    mla: bool = True
    indexed: bool = False
    high: bool = False
    cycles: Mapping[Work, float] = MappingProxyType({})

    def instructions(self, work: Mapping[Work, float]) -> float:
        return math.fsum(self.weights[kind] * count for kind, count in work.items())

    def code_bytes(self, work: Mapping[Work, float]) -> float:
        """Returns the bytes of the code of ``work``."""
        return self.width * self.instructions(work)

    def time(self, work: Mapping[Work, float]) -> int | None:
        """Returns the cycles of work; None where they aren't known."""
        if not self.cycles:
            return None
        return round(math.fsum(self.cycles[kind] * count for kind, count in work.items()))


class Counted(Struct):
    """Work of a run, and as it stands in the code."""

    run: dict[Work, float]
    code: dict[Work, float]
    loops: tuple[LoopCode[Work], ...] = ()


def counted(
    kernel: Kernel, registers: int, values: Mapping[str, int] = MappingProxyType({}), *,
    mla: bool = True, indexed: bool = False, high: bool = False,
) -> Counted:
    """Returns the work of a kernel, whose parameters have ``values``; as 1 count those without."""
    params = {param.name: values.get(param.name, 1) for param in kernel.params}
    walk = _Walk(registers, params, mla, indexed, high)
    walk.body(kernel.body)
    return Counted(walk.run, walk.code, tuple(walk.loops[0]))


def estimate(
    kernel: Kernel, machine: Machine, values: Mapping[str, int] = MappingProxyType({}),
    flash: Flash | None = None,
) -> Cost:
    """Returns the cost of a run of a kernel whose parameters have ``values``, in ``flash`` if that
    matters."""
    work = counted(
        kernel, machine.registers, values, mla=machine.mla, indexed=machine.indexed,
        high=machine.high,
    )
    return Cost(
        round(machine.instructions(work.run)),
        round(machine.code_bytes(work.code)),
        0 if flash is None else round(missed_lines(work.loops, machine.code_bytes, flash)),
        machine.time(work.run),
    )


def extents(kernel: Kernel) -> tuple[str, ...]:
    """Returns the parameters whose values an estimate depends on: those that loops run to."""
    loops = (stmt.extent for stmt in walk(kernel.body) if isinstance(stmt, kir.For))
    return tuple(dict.fromkeys(extent.name for extent in loops if isinstance(extent, kir.Var)))


_UNKNOWN_EXTENT = 3
"""Instructions that an iteration takes more where the loop's extent is a parameter."""
_UNKNOWN_EXTENT_INDEXED = 1
"""And where addresses are sums, so that each loop counts anyway."""
_SHORT = 4
"""Iterations of loops that are written out. Addresses made of parameters differ there by more than
what instructions hold: each iteration computes its own."""
_LIKELY = 0.75
"""The part of the time that a condition holds where that isn't known: most say that something lies
in an image."""
_WORDS = (Scalar.I32, Scalar.U32, Scalar.INDEX, Scalar.I1)
# Enum finds its members slowly.
(
    _SIMPLE, _WIDE, _LOAD, _STORE, _POINTER, _CHOICE, _DIVIDE, _BRANCH, _TURN, _LOOP, _SPILL,
    _WIDENED, _ACCUMULATED,
) = Work
_MUL, _I64 = BinaryOp.MUL, Scalar.I64
_SUMS = (BinaryOp.ADD, BinaryOp.SUB)
_KINDS = {
    BinaryOp.DIV: _DIVIDE, BinaryOp.MIN: _CHOICE, BinaryOp.MAX: _CHOICE,
}
"""Of operations that aren't simple."""


_OTHER = "value "
"""The beginning of the names of terms that aren't variables."""


class _Sum(Struct, frozen=True):
    """An index without what is added to it: at which depth of loops it changes, its terms with
    their factors, and which parameters are among these."""

    depth: int
    terms: frozenset[tuple[str, int]]
    of_params: frozenset[str]


class _Walk:
    def __init__(
        self, registers: int, params: Mapping[str, int], mla: bool, indexed: bool, high: bool
    ) -> None:
        self.registers, self.params = registers, params
        self.mla, self.indexed, self.high = mla, indexed, high
        self.run = dict.fromkeys(Work, 0.0)
        self.code = dict.fromkeys(Work, 0.0)
        # By depth of loops: how often what stands there runs, and how often it is written.
        self.times = [1.0]
        self.copies = [1.0]
        self.loops: list[list[LoopCode[Work]]] = [[]]
        # The same as ``code``, of branches the part that is likely to run.
        self.used = dict.fromkeys(Work, 0.0)
        self.likely = 1.0
        self.pointers: list[set[object]] = [set()]
        self.kept: list[set[str]] = [set()]  # parameters, which want a register
        self.depth_of: dict[str, int] = {}
        self.extents: dict[str, int] = {}  # of loops, by their variables
        self.lets: dict[str, Expr] = {}
        self.sums: dict[Expr, _Sum] = {}
        # These are asked of each part of each variant of a kernel.
        self.values: dict[type[Expr], Callable[[Any], int]] = {
            kir.Const: lambda _: 0, kir.Var: self._named, kir.Binary: self._binary,
            kir.Load: self._load, kir.LoadWord: self._load, kir.LoadVector: self._load,
            kir.Call: self._call, kir.Cast: self._cast, kir.Compare: self._compared,
            kir.Select: self._selected,
        }

    def _count(self, kind: Work, depth: int, amount: float = 1) -> None:
        self.run[kind] += amount * self.times[depth]
        self.code[kind] += amount * self.copies[depth]
        self.used[kind] += amount * self.copies[depth] * self.likely

    # -- statements

    def body(self, body: Body) -> None:
        for stmt in body:
            match stmt:
                case kir.Let() | kir.Local():
                    depth = self._value(stmt.value)
                    here = len(self.times) - 1
                    self.depth_of[stmt.var.name] = here if isinstance(stmt, kir.Local) else depth
                    if isinstance(stmt, kir.Let):
                        self.lets[stmt.var.name] = stmt.value
                case kir.Assign():
                    self._value(stmt.value)
                case kir.Store() | kir.StoreVector():
                    self._address(stmt.buffer.name, stmt.index)
                    self._value(stmt.value)
                    self._count(_STORE, len(self.times) - 1)
                case kir.For():
                    self._loop(stmt)
                case kir.If():
                    self._branch(stmt)

    def _branch(self, stmt: kir.If) -> None:
        self._value(stmt.condition)
        self._count(_BRANCH, len(self.times) - 1)
        times, before = self.times[-1], self.likely
        known = likelihood(stmt.condition, self.extents, self.lets)
        likely = _LIKELY if known is None else known
        for body, part in ((stmt.then, likely), (stmt.other, 1 - likely)):
            self.times[-1], self.likely = times * part, before * part
            self.body(body)
        self.times[-1], self.likely = times, before

    def _loop(self, stmt: kir.For) -> None:
        fixed = isinstance(stmt.extent, kir.Const)
        extent = self._extent(stmt.extent)
        if extent <= 0:
            return
        here = len(self.times) - 1
        copies = min(stmt.unroll or 1, extent) if fixed else stmt.unroll or 1
        whole = fixed and copies == extent
        if not whole:
            self._count(_LOOP, here)
        self.times.append(self.times[here] * extent)
        # Where the extent isn't fixed, a loop without copies does what is left.
        self.copies.append(self.copies[here] * (copies if fixed or copies == 1 else copies + 1))
        self.pointers.append(set())
        self.kept.append(set())
        self.loops.append([])
        before = dict(self.used)
        self.depth_of[stmt.var.name] = here + 1
        if fixed:
            self.extents[stmt.var.name] = extent
        self.body(stmt.body)
        own = self.pointers.pop()
        kept = self.kept.pop()
        times = self.times.pop() / copies
        self.copies.pop()
        inside = self.loops.pop() * copies
        if whole:
            self.loops[-1] += inside
            return
        self.loops[-1].append(LoopCode(
            extent / copies,
            {kind: (now - before[kind]) / self.copies[here] for kind, now in self.used.items()},
            tuple(inside),
        ))
        if not fixed:
            # Counting down, addressing and repeating without counting want to know how often.
            more = _UNKNOWN_EXTENT_INDEXED if self.indexed else _UNKNOWN_EXTENT
            self.run[_SIMPLE] += more * times
        elif self.indexed and kept and extent <= _SHORT:
            self.run[_SIMPLE] += len(own) * times
        self.run[_TURN] += times
        self.code[_TURN] += self.copies[here]
        self.run[_POINTER] += times * len(own)
        self.code[_POINTER] += self.copies[here] * len(own)
        sums = {s.var.name for s in stmt.body if isinstance(s, kir.Assign)}
        spilt = max(len(sums) + len(own) + len(kept) + 1 - self.registers, 0)
        self.run[_SPILL] += times * spilt
        self.code[_SPILL] += self.copies[here] * spilt

    def _extent(self, extent: Expr) -> int:
        match extent:
            case kir.Const(value):
                return int(value)
            case kir.Var(name):
                return self.params.get(name, 1)
            case _:
                return 1

    # -- expressions: each returns the depth of loops at which its value changes

    def _value(self, expr: Expr) -> int:
        return self.values[type(expr)](expr)

    def _named(self, expr: kir.Var) -> int:
        if expr.name in self.params:
            self.kept[-1].add(expr.name)
        return self.depth_of.get(expr.name, 0)

    def _deepest(self, parts: Iterable[Expr]) -> int:
        deepest, depth_of = 0, self.depth_of
        for part in parts:
            if isinstance(part, kir.Var) and part.name in depth_of:
                depth = depth_of[part.name]
            else:
                depth = self._value(part)
            if depth > deepest:  # noqa: PLR1730 - takes half of what max does
                deepest = depth
        return deepest

    def _call(self, expr: kir.Call) -> int:
        depth = self._deepest(expr.args)
        if expr.name not in FREE:
            self._count(_SIMPLE, depth)
        return depth

    def _cast(self, expr: kir.Cast) -> int:
        product = upper_of_product(expr) if self.high else None
        if product is not None:
            depth = self._deepest(product[:2])
            self._count(_SIMPLE, depth)
            return depth
        depth = self._value(expr.value)
        source, type_ = expr.value.type, expr.type
        if (source in _WORDS) != (type_ in _WORDS) and _I64 in (source, type_):
            self._count(_SIMPLE, depth, 0.5)
        return depth

    def _compared(self, expr: kir.Compare) -> int:
        depth = self._deepest((expr.a, expr.b))
        self._count(_SIMPLE, depth)
        return depth

    def _selected(self, expr: kir.Select) -> int:
        depth = self._deepest((expr.condition, expr.then, expr.other))
        self._count(_CHOICE, depth)
        return depth

    def _load(self, expr: kir.Reading) -> int:
        here = len(self.times) - 1
        self._address(expr.buffer.name, expr.index)
        self._count(_LOAD, here)
        if isinstance(expr, kir.LoadVector) and expr.type.lane is not expr.buffer.dtype:
            self._count(_WIDENED, here)
        return here

    def _binary(self, expr: kir.Binary) -> int:
        op, a, b = expr.op, expr.a, expr.b
        parts: tuple[Expr, ...] = (a, b)
        if isinstance(b, kir.Binary) and b.op is _MUL and self.mla and op in _SUMS:
            parts = a, b.a, b.b
        depth = self._deepest(parts)
        kind = _KINDS.get(op, _SIMPLE)
        wide = kind is _SIMPLE and expr.type is _I64
        self._count(_WIDE if wide else kind, depth)
        if len(parts) > 2 and not wide:
            self._count(_ACCUMULATED, depth)
        return depth

    def _address(self, buffer: str, index: Expr) -> None:
        """Counts a pointer for each sum of variables with factors that is met for the first
        time."""
        index, _ = split_constant(index)
        found = self.sums.get(index)
        if found is None:
            found = self._sum(index)
        if self.indexed:
            self.kept[-1] |= found.of_params
        elif found.of_params:
            self._count(_SIMPLE, len(self.times) - 1)  # no instruction's offset can hold it
        depth, key = found.depth, (buffer, found.terms)
        if depth < len(self.pointers) and key not in self.pointers[depth]:
            self.pointers[depth].add(key)
            if depth < len(self.times) - 1 or len(found.terms) > 1:
                self._count(_SIMPLE, max(depth - 1, 0), len(found.terms))

    def _sum(self, index: Expr) -> _Sum:
        """Returns an index as a sum. What computes other values is counted wherever it stands, all
        else is remembered."""
        terms: dict[str, int] = {}
        depth = self._terms(index, 1, terms)
        params = self.params
        of_params = frozenset(p for term in terms for p in term.split() if p in params)
        found = _Sum(depth, frozenset(terms.items()), of_params)
        if not any(term.startswith(_OTHER) for term in terms):
            self.sums[index] = found
        return found

    def _terms(self, index: Expr, factor: int, terms: dict[str, int]) -> int:
        """Adds the terms of an index to ``terms``; returns the depth at which it changes."""
        return max((
            self._term(term, factor * times, terms) for term, times in linear_form(index)[0]
        ), default=0)

    def _term(self, term: Expr, factor: int, terms: dict[str, int]) -> int:
        match term:
            case kir.Var(name=name):
                terms[name] = terms.get(name, 0) + factor
                return self.depth_of.get(name, 0)
            case kir.Binary(op=BinaryOp.MUL, b=kir.Var(name=step)) if step in self.params:
                # The pointer advances by as much.
                own: dict[str, int] = {}
                depth = self._terms(term.a, factor, own)
                terms |= {f"{name} {step}": count for name, count in own.items()}
                return depth
            case _:
                name = f"{_OTHER}{len(terms)}"
                terms[name] = factor
                return self._value(term)


def _weights(*weights: float) -> dict[Work, float]:
    return dict(zip(Work, (*weights, 0.0)[: len(Work)], strict=True))


CORTEX_M4 = Machine(
    8, _weights(0.91, 2.51, 1.33, 0.89, 0.31, 0.25, 2.97, 2.01, 1.34, 6.03, 1.43, 0.0), 3.40, 0.0,
    high=True,
    cycles=_weights(1.06, 2.61, 1.20, 1.24, 0.73, 0.60, 3.05, 2.04, 3.02, 6.38, 1.54, 0.0),
)
"""Fitted to loops that are ordered for it, and to their cycles."""
CORTEX_M3 = Machine(
    8, _weights(0.79, 0.39, 0.71, 0.96, 0.86, 1.3, 2.93, 1.97, 2.32, 5.83, 1.32, 0.0, 0.26), 3.71,
    0.0,
    cycles=_weights(0.76, 1.67, 1.33, 0.08, 1.4, 0.95, 2.98, 2.05, 2.53, 5.89, 1.98, 0.0, 1.53),
)
CORTEX_M33 = Machine(
    8, _weights(0.60, 0.17, 1.35, 0.18, 0.43, 2.36, 3.01, 2.50, 1.27, 6.02, 1.95, 0.0), 3.71, 0.0
)
"""Without DSP instructions: a Cortex-M3 but for its cycles, which aren't known."""
CORTEX_M55 = Machine(
    8, _weights(0.8, 2.0, 1.25, 0.09, 0.02, 2.51, 3.11, 2.07, 2.41, 7.03, 0.52, 0.0), 4.0, 0.03
)
CORTEX_M0 = Machine(
    8, _weights(0.95, 6.09, 1.32, 2.36, 0.21, 3.45, 2.68, 2.80, 2.05, 6.41, 2.02, 0.0), 2.21, 0.0,
    mla=False,
)
RV32 = Machine(
    24, _weights(1.47, 1.16, 1.49, 0.0, 0.81, 1.37, 2.99, 1.56, 0.34, 5.37, 2.0, 0.0), 3.23, 0.0
)
RV32_V = Machine(
    24, _weights(1.46, 1.58, 0.89, 2.46, 0.0, 1.25, 3.22, 2.34, 2.96, 6.22, 0.0, 1.68), 3.45, 0.05
)
"""Fitted to variants with vectors, an instruction of which often wants the lanes set before it."""
X86_64 = Machine(
    32, _weights(1.4, 2.0, 0.35, 0.85, 0.0, 1.0, 20.0, 2.0, 0.6, 6.0, 0.0, 0.7), 7.5, 0.0,
    indexed=True,
)
"""Says roughly what part of a network kernels are and what parameters cost them, of that often too
much: enough to share functions by, not to choose among variants."""


def stand_in(target: Target) -> Machine:
    """Returns the machine by whose costs kernels share functions where no variant is chosen by
    any."""
    return X86_64 if is_x86_64(target) else CORTEX_M33


def machine_for(target: Target) -> Machine | None:
    """Returns the machine that is most like a target; None where nothing like it was measured."""
    if target.triple.startswith("riscv32"):
        vectors = any(feature.startswith(("+v", "+zve")) for feature in target.features)
        return RV32_V if vectors else RV32
    if not target.triple.startswith("thumb"):
        return None
    if any(feature.startswith("+mve") for feature in target.features):
        return CORTEX_M55
    if "+dsp" in target.features:
        return CORTEX_M4
    if has_few_registers(target):
        return CORTEX_M0
    if target.triple.startswith("thumbv7m"):
        return CORTEX_M3
    return CORTEX_M33 if target.triple.startswith("thumbv8m.main") else None
