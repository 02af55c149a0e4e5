"""Prints a Kernel as an internal LLVM function, statement by statement.

Locals become stack slots, which LLVM's first pass turns into registers; within a block they are in
registers already. Loops test at the end and have one latch, which carries the hints. Expressions
that dominate a place aren't printed again there; nothing else is optimized here.
"""

from __future__ import annotations

import functools
from typing import Literal, assert_never

from msgspec import Struct

from crtexport.artifact.symbols import assembled_symbol
from crtexport.backends.llvm.assembled import define_assembled
from crtexport.backends.llvm.calling import Calling, bound_operand
from crtexport.backends.llvm.cast import cast
from crtexport.backends.llvm.fused import fused, has_fused
from crtexport.backends.llvm.in_order import InOrder
from crtexport.backends.llvm.types import (
    ModuleText,
    comment,
    literal,
    numbered,
    storage_type,
    value_type,
)
from crtexport.backends.llvm.vectors import load_vector, store_vector
from crtexport.kir import language as kir
from crtexport.kir.alignment import alignment
from crtexport.kir.assembly.assemble import assembled
from crtexport.kir.intrinsics.fma import FMA
from crtexport.kir.intrinsics.in_order import IN_ORDER
from crtexport.kir.intrinsics.registry import find_intrinsic
from crtexport.kir.language import BinaryOp, Body, Buffer, CompareOp, Expr, Kernel, Scalar, Stmt
from crtexport.support.errors import CrtExportError

Linkage = Literal["internal", "hidden"]

_WRAPPING = {
    BinaryOp.WRAP_ADD: "add", BinaryOp.WRAP_SUB: "sub", BinaryOp.WRAP_MUL: "mul",
    BinaryOp.AND: "and", BinaryOp.OR: "or", BinaryOp.XOR: "xor", BinaryOp.SHL: "shl",
}
_SIGNED = {
    BinaryOp.ADD: "add nsw", BinaryOp.SUB: "sub nsw", BinaryOp.MUL: "mul nsw",
    BinaryOp.DIV: "sdiv", BinaryOp.SHR: "ashr",
}
_UNSIGNED = {
    BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul", BinaryOp.DIV: "udiv",
    BinaryOp.SHR: "lshr",
}
_EXTREMES = (BinaryOp.MIN, BinaryOp.MAX)
_I1, _INDEX = Scalar.I1, Scalar.INDEX  # Enum finds its members slowly
_FLOAT = {
    BinaryOp.ADD: "fadd", BinaryOp.SUB: "fsub", BinaryOp.MUL: "fmul", BinaryOp.DIV: "fdiv",
}
_FLOAT_COMPARE = {
    CompareOp.EQ: "oeq", CompareOp.NE: "une", CompareOp.LT: "olt", CompareOp.LE: "ole",
    CompareOp.GT: "ogt", CompareOp.GE: "oge",
}
_KERNEL_ATTRIBUTES = "noinline mustprogress nofree norecurse nosync willreturn"
_WITHOUT_CALLS = '"no-builtin-memcpy" "no-builtin-memmove" "no-builtin-memset"'
"""Loops of vectors stay loops: C libraries of small processors copy odd addresses byte by byte."""


def print_kernel(
    symbol: str, kernel: Kernel, module: ModuleText, linkage: Linkage = "internal",
    calling: Calling | None = None,
) -> str:
    """Returns the definition of ``kernel`` as ``@symbol``; helpers that it needs go into
    ``module``.

    ``linkage`` is hidden where other modules of the model call it; ``calling`` is its calling
    convention, by default the plain one. Raises CrtExportError, naming the kernel, when it uses
    features that the language doesn't have.
    """
    try:
        return _KernelPrinter(module).function(symbol, kernel, linkage, calling or Calling())
    except CrtExportError as error:
        raise error.within(kernel.name) from None


def declare_kernel(symbol: str, kernel: Kernel, module: ModuleText, calling: Calling) -> str:
    """Returns the declaration of a kernel that another module defines, hidden."""
    types = ["ptr"] * len(kernel.buffers)
    types += [value_type(param.type, module.target) for param in kernel.params]
    types = [type_ for position, type_ in enumerate(types) if position not in calling.bound]
    return f"declare hidden {calling.convention}void @{symbol}({', '.join(types)}) nounwind"


@functools.cache
def _register(number: int) -> str:
    """Returns a value's register: unnamed values are numbered, which costs LLVM no table of names.
    """
    return f"%{number}"


@functools.cache
def _operation(op: BinaryOp, scalar: Scalar, type_: str) -> str:
    """Returns the instruction of an operation without its operands; ``type_`` is that of
    ``scalar``."""
    if scalar.is_float:
        if op not in _FLOAT:
            raise CrtExportError(f"floats have no operation {op.value}")
        return f"{_FLOAT[op]} {type_}"
    if op in _WRAPPING:
        return f"{_WRAPPING[op]} {type_}"
    return f"{(_SIGNED if scalar.is_signed else _UNSIGNED)[op]} {type_}"


class _AccessText(Struct, frozen=True):
    """The fixed text of loads and stores of a buffer's elements or of a stack slot: the type, the
    alignment, and the beginning of an element's address, whose index follows."""

    type: str
    align: int
    address: str = ""

    def load(self, address: str) -> str:
        return f"load {self.type}, ptr {address}, align {self.align}"

    def store(self, value: str, address: str) -> str:
        return f"store {self.type} {value}, ptr {address}, align {self.align}"


class _KernelPrinter:
    """State of one function: lines, stack slots, known values, and counters for fresh names."""

    def __init__(self, module: ModuleText) -> None:
        self._module = module
        self._target = module.target
        self._lines: list[str] = []
        self._slots: list[str] = []
        self._values: dict[str, str] = {}
        self._buffers: dict[str, _AccessText] = {}
        self._locals: dict[str, _AccessText] = {}
        self._current: dict[str, str] = {}  # values of locals in this block
        self._unsaved: dict[str, Scalar] = {}  # locals whose slots hold older values
        self._known: dict[str, str] = {}  # instructions on each way here, with their names
        self._called: set[str] = set()
        self._in_order = InOrder(self._target, self._values, self._assign)
        self._vectors = False
        self._hot_in_functions = False  # of instructions of crtexport's own
        self._label = "entry"
        self._fresh = 0
        self._labels = 0

    # ---- functions -----------------------------------------------------------------------------

    def function(self, symbol: str, kernel: Kernel, linkage: Linkage, calling: Calling) -> str:
        self._kernel, self._symbol = kernel, symbol
        operands = {p: bound_operand(arg, self._target) for p, arg in calling.bound.items()}
        params = []
        for position, buffer in enumerate(kernel.buffers):
            self._add_buffer(buffer, operands.get(position, f"%{buffer.name}"))
            if position not in operands:
                alone = buffer.name not in kernel.overlapping
                params.append(self._buffer_param(buffer, alone))
        for position, param in enumerate(kernel.params, len(kernel.buffers)):
            self._values[param.name] = operands.get(position, f"%{param.name}")
            if position not in operands:
                params.append(f"{self._type(param.type)} noundef %{param.name}")
        self._body(kernel.body)
        smallest = self._hot_in_functions and self._module.optimize == "compact"
        words = [
            _KERNEL_ATTRIBUTES, *(["minsize"] if smallest else []),
            *([_WITHOUT_CALLS] if self._vectors else []), "#0",
        ]
        returns = f"{linkage} {calling.convention}void"
        head = f"define {returns} @{symbol}({', '.join(params)}) {' '.join(words)}"
        return "\n".join([
            *(comment(line) for line in kernel.doc),
            f'{head} section ".text.{symbol}" {{',
            "entry:", *self._slots, *self._lines, "  ret void", "}", "",
        ])

    def _add_buffer(self, buffer: Buffer, base: str) -> None:
        type_ = storage_type(buffer.dtype, self._target)
        address = f"getelementptr inbounds {type_}, ptr {base}, {self._type(_INDEX)} "
        self._buffers[buffer.name] = _AccessText(type_, buffer.dtype.itemsize, address)

    def _buffer_param(self, buffer: Buffer, unaliased: bool) -> str:
        words = ["ptr"]
        if unaliased:
            words.append("noalias")
        if not buffer.writable:
            words.append("readonly")
        return " ".join([*words, "noundef captures(none)", f"align {buffer.align} %{buffer.name}"])

    # ---- statements ----------------------------------------------------------------------------

    def _body(self, body: Body) -> None:
        for stmt in body:
            self._statement(stmt)

    def _inside(self, body: Body) -> None:
        """Prints ``body``, a branch that doesn't dominate the code after it."""
        known, self._known = self._known, self._known.copy()
        self._body(body)
        self._known = known

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case kir.Let():
                self._values[stmt.var.name] = self._expr(stmt.value)
            case kir.Local():
                self._add_local(stmt.var)
                self._set_local(stmt)
            case kir.Assign():
                self._set_local(stmt)
            case kir.Store():
                value = self._in_memory(self._expr(stmt.value), stmt.buffer.dtype)
                address = self._address(stmt.buffer, stmt.index)
                self._line(self._buffers[stmt.buffer.name].store(value, address))
            case kir.StoreVector():
                self._vectors = True
                value = self._expr(stmt.value)
                for line in store_vector(
                    stmt, value, self._address(stmt.buffer, stmt.index), self._module, self._assign
                ):
                    self._line(line)
            case kir.For():
                self._for(stmt)
            case kir.If():
                self._if(stmt)
            case kir.Comment():
                self._line(comment(stmt.text))
            case _:
                assert_never(stmt)

    def _add_local(self, var: kir.Var) -> None:
        type_ = storage_type(var.type, self._target)
        align = self._target.pointer_bits // 8 if var.type is _INDEX else var.type.itemsize
        self._slots.append(f"  %{var.name} = alloca {type_}, align {align}")
        self._locals[var.name] = _AccessText(type_, align)

    def _set_local(self, stmt: kir.Local | kir.Assign) -> None:
        self._current[stmt.var.name] = self._expr(stmt.value)
        self._unsaved[stmt.var.name] = stmt.var.type

    def _save_locals(self) -> None:
        """Writes locals to slots that other blocks may read."""
        for name, scalar in self._unsaved.items():
            value = self._in_memory(self._current[name], scalar)
            self._line(self._locals[name].store(value, f"%{name}"))
        self._unsaved.clear()
        self._current.clear()

    def _for(self, loop: kir.For) -> None:
        if loop.assembled and self._assembled(loop):
            return
        type_ = self._type(loop.extent.type)
        extent = self._expr(loop.extent)
        number = self._number()
        before = self._label
        if isinstance(loop.extent, kir.Const):
            if loop.extent.value <= 0:
                return
        else:
            some = self._assign(f"icmp sgt {type_} {extent}, 0")
            before = self._open(
                f"enter.{number}", f"br i1 {some}, label %enter.{number}, label %done.{number}"
            )
        self._open(f"loop.{number}", f"br label %loop.{number}")
        phi = len(self._lines)
        name = f"%{loop.var.name}"
        self._values[loop.var.name] = name
        self._inside(loop.body)
        after = self._assign(f"add nuw nsw {type_} {name}, 1")
        self._lines.insert(
            phi, f"  {name} = phi {type_} [ 0, %{before} ], [ {after}, %{self._label} ]"
        )
        more = self._assign(f"icmp slt {type_} {after}, {extent}")
        self._open(
            f"done.{number}",
            f"br i1 {more}, label %loop.{number}, label %done.{number}{self._hints(loop)}",
        )

    def _assembled(self, loop: kir.For) -> bool:
        """Prints a call of a function of instructions; returns False where there are none."""
        made = assembled(loop, self._kernel, self._target)
        if made is None:
            return False
        symbol = assembled_symbol(self._symbol, loop.var.name)
        function = define_assembled(symbol, made, self._module)
        args = []
        for argument in made.arguments:
            index = self._expr(argument.index)
            if argument.buffer:
                buffer = self._buffers[argument.buffer]
                # What a pointer begins or ends with needn't be an element.
                address = buffer.address.replace(" inbounds", "", 1)
                args.append(f"ptr {self._assign(f'{address}{index}')}")
            else:
                args.append(f"i32 {index}")
        self._line(f"call void {function}({', '.join(args)})")
        self._hot_in_functions = True
        return True

    def _hints(self, loop: kir.For) -> str:
        """Returns ``!llvm.loop`` metadata for the latch, or nothing."""
        hints = []
        if loop.unroll == 1:
            hints.append('!{!"llvm.loop.unroll.disable"}')
        elif loop.unroll is not None:
            hints.append(f'!{{!"llvm.loop.unroll.count", i32 {loop.unroll}}}')
        if loop.vectorize is not None:
            hints.append(f'!{{!"llvm.loop.vectorize.width", i32 {loop.vectorize}}}')
        if loop.vectorize == 1:
            hints.append('!{!"llvm.loop.interleave.count", i32 1}')
        if not hints:
            return ""
        nodes = [self._module.add_metadata(hint) for hint in hints]
        loop_id = self._module.add_metadata("distinct !{" + ", ".join(["{self}", *nodes]) + "}")
        return f", !llvm.loop {loop_id}"

    def _if(self, stmt: kir.If) -> None:
        condition = self._expr(stmt.condition)
        number = self._number()
        other = f"else.{number}" if stmt.other else f"end.{number}"
        self._open(f"then.{number}", f"br i1 {condition}, label %then.{number}, label %{other}")
        self._inside(stmt.then)
        if stmt.other:
            self._open(other, f"br label %end.{number}")
            self._inside(stmt.other)
        self._open(f"end.{number}", f"br label %end.{number}")

    # ---- expressions ---------------------------------------------------------------------------

    def _expr(self, expr: Expr) -> str:
        """Returns the operand that holds ``expr``, after the instructions that compute it."""
        match expr:
            case kir.Var():
                return self._variable(expr)
            case kir.Const():
                return literal(expr)
            case kir.Binary():
                return self._binary(expr)
            case kir.Load():
                load = self._buffers[expr.buffer.name].load(self._address(expr.buffer, expr.index))
                return self._from_memory(self._assign(load), expr.buffer.dtype)
            case kir.LoadWord():
                align = alignment(expr)
                address = self._address(expr.buffer, expr.index)
                return self._assign(f"load i32, ptr {address}, align {align}")
            case kir.LoadVector():
                address = self._address(expr.buffer, expr.index)
                return load_vector(expr, address, self._module, self._assign)
            case kir.Compare():
                return self._compare(expr)
            case kir.Select():
                condition, then, other = map(self._expr, (expr.condition, expr.then, expr.other))
                type_ = self._type(expr.type)
                return self._pure(f"select i1 {condition}, {type_} {then}, {type_} {other}")
            case kir.Cast():
                value = self._expr(expr.value)
                return cast(value, expr.value.type, expr.type, self._module, self._pure)
            case kir.Call():
                return self._call(expr)
            case _:
                assert_never(expr)

    def _variable(self, var: kir.Var) -> str:
        name = var.name
        value = self._values.get(name)
        if value is not None:
            return value
        if name not in self._locals:
            raise CrtExportError("a kernel uses an unknown variable", location=name)
        if name not in self._current:
            loaded = self._assign(self._locals[name].load(f"%{name}"))
            self._current[name] = self._from_memory(loaded, var.type)
        return self._current[name]

    def _binary(self, expr: kir.Binary) -> str:
        a, b = self._expr(expr.a), self._expr(expr.b)
        scalar, op = expr.type, expr.op
        if op in _EXTREMES:
            return self._extremum(op, scalar, a, b)
        return self._pure(f"{_operation(op, scalar, self._type(scalar))} {a}, {b}")

    def _extremum(self, op: BinaryOp, scalar: Scalar, a: str, b: str) -> str:
        """Returns MIN as ``b < a ? b : a``, MAX as ``a < b ? b : a``: that decides about NaN and
        -0."""
        type_ = self._type(scalar)
        if scalar.is_float:
            low, high = (b, a) if op is BinaryOp.MIN else (a, b)
            less = self._pure(f"fcmp olt {type_} {low}, {high}")
            return self._pure(f"select i1 {less}, {type_} {b}, {type_} {a}")
        name = f"llvm.{'s' if scalar.is_signed else 'u'}{op.value}.{type_}"
        self._module.declare(f"declare {type_} @{name}({type_}, {type_})")
        return self._pure(f"call {type_} @{name}({type_} {a}, {type_} {b})")

    def _compare(self, expr: kir.Compare) -> str:
        a, b = self._expr(expr.a), self._expr(expr.b)
        scalar, op = expr.a.type, expr.op
        if scalar.is_float:
            return self._pure(f"fcmp {_FLOAT_COMPARE[op]} {self._type(scalar)} {a}, {b}")
        word = op.value
        if op not in (CompareOp.EQ, CompareOp.NE):
            word = ("s" if scalar.is_signed else "u") + word
        return self._pure(f"icmp {word} {self._type(scalar)} {a}, {b}")

    def _call(self, expr: kir.Call) -> str:
        intrinsic = find_intrinsic(expr.name)
        if intrinsic is None:
            raise CrtExportError("there is no intrinsic of this name", location=expr.name)
        if intrinsic is FMA and not has_fused(self._target):
            a, b, c = map(self._expr, expr.args)
            return self._pure(
                f"call float @{fused(self._module)}(float {a}, float {b}, float {c})"
            )
        if intrinsic in IN_ORDER:
            return self._in_order.compute(intrinsic, expr.args, self._expr)
        if expr.name not in self._called:
            self._called.add(expr.name)
            for line in intrinsic.llvm_declare.splitlines():
                self._module.declare(numbered(line))
        return self._pure(intrinsic.llvm.format(*map(self._expr, expr.args)))

    # ---- memory --------------------------------------------------------------------------------

    def _address(self, buffer: Buffer, index: Expr) -> str:
        return self._pure(self._buffers[buffer.name].address + self._expr(index))

    def _in_memory(self, value: str, scalar: Scalar) -> str:
        return self._pure(f"zext i1 {value} to i8") if scalar is _I1 else value

    def _from_memory(self, value: str, scalar: Scalar) -> str:
        return self._pure(f"icmp ne i8 {value}, 0") if scalar is _I1 else value

    # ---- text ----------------------------------------------------------------------------------

    def _type(self, scalar: Scalar) -> str:
        return value_type(scalar, self._target)

    def _line(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def _assign(self, instruction: str) -> str:
        """Returns a fresh name, defined by ``instruction``."""
        name = _register(self._fresh)
        self._fresh += 1
        self._lines.append(f"  {name} = {instruction}")
        return name

    def _pure(self, instruction: str) -> str:
        """Returns the name of the result of an ``instruction`` that only depends on operands, which
        a dominating place may have computed."""
        name = self._known.get(instruction)
        if name is None:
            name = self._known[instruction] = self._assign(instruction)
        return name

    def _number(self) -> int:
        self._labels += 1
        return self._labels

    def _open(self, label: str, terminator: str) -> str:
        """Ends the current block with ``terminator`` and begins ``label``."""
        self._save_locals()
        self._line(terminator)
        self._lines.append(f"{label}:")
        self._in_order.begin_block()
        self._label = label
        return label
