"""Prints one kernel as a C99 function without undefined behaviour and without warnings.

Arithmetic types are fixed: ``index`` is ptrdiff_t, which is the width of a pointer everywhere, so
that subscripts need neither extension nor conversion; ``i1`` is a condition (``bool`` when it has
a name). Two's complement wrap goes through unsigned types. Conversions to a signed type and
``>>`` of negative numbers are left to the implementation by C99; all compilers that build for our
targets wrap and shift arithmetically.

Parentheses: only ``+ - *`` lean on precedence; operands of shifts, comparisons, bit operations,
divisions and ``?:`` are parenthesized whenever they are more than a unary expression.

Where ``int`` has 16 bits, literals of 32 bits say so: operators would otherwise compute in ``int``
what stands between two of them. All else has a type of its own, from variables and casts.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct, field

from crtexport.artifact.symbols import RESERVED, assembled_symbol
from crtexport.backends.c import assembled as c_assembled
from crtexport.backends.c import helpers as c_helpers
from crtexport.backends.c import vectors as c_vectors
from crtexport.backends.c.helpers import INDEX_TYPE
from crtexport.backends.c.layout import folded
from crtexport.backends.c.literals import (
    LINE,
    STORAGE,
    IntBits,
    block_comment,
    layer_comment,
    needs_special,
    readable,
)
from crtexport.backends.c.prune import prune
from crtexport.kir import language as kir
from crtexport.kir.alignment import alignment
from crtexport.kir.assembly.assemble import Assembled, assembled
from crtexport.kir.intrinsics.registry import find_intrinsic
from crtexport.kir.language import BinaryOp, Body, Buffer, CompareOp, Expr, Kernel, Scalar, Stmt
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target


class KernelText(Struct, frozen=True):
    """A printed kernel and the keys of the helpers (:mod:`c_helpers`) that it uses."""

    text: str
    needs: frozenset[str]


def print_kernel(
    kernel: Kernel, symbol: str, file_names: frozenset[str] = frozenset(), *, shared: bool = False,
    int_bits: IntBits = 32, target: Target | None = None,
    assembled: dict[str, str] | None = None,
) -> KernelText:
    """Returns ``kernel`` as ``static void symbol(buffers..., params...)``; with ``shared`` other
    files of the package see it.

    ``file_names``: file-scope names that no local may shadow. ``int_bits``: the width of ``int``,
    or less; ``target``: the one for which loops have instructions of their own; ``assembled``: the
    names of functions of these that the file has already, by their texts: further ones are added.
    Raises CrtExportError for what the Kernel IR forbids (arithmetic on storage types) or an unknown
    intrinsic.
    """
    linkage = "CRT_SHARED" if shared else "static"
    return _printer(kernel, symbol, file_names, linkage, int_bits, target, assembled).print()


def declare_kernel(
    kernel: Kernel, symbol: str, file_names: frozenset[str] = frozenset()
) -> KernelText:
    """Returns the declaration of a kernel that another file defines as shared."""
    return _printer(kernel, symbol, file_names, "CRT_SHARED").declaration()


def _printer(
    kernel: Kernel, symbol: str, file_names: frozenset[str], linkage: str, int_bits: IntBits = 32,
    target: Target | None = None, assembled: dict[str, str] | None = None,
) -> _CPrinter:
    return _CPrinter(
        kernel, symbol, {*file_names, *RESERVED, symbol}, linkage, int_bits, target,
        {} if assembled is None else assembled,
    )


class _Level(enum.IntEnum):
    """Levels of precedence: the tightness of an expression as an operand."""

    COMPOUND = 0
    SUM = 1
    PRODUCT = 2
    UNARY = 3
    PRIMARY = 4


_Text = tuple[str, _Level]
_COMPOUND, _SUM, _PRODUCT, _UNARY, _PRIMARY = _Level  # Enum finds its members slowly
_I1 = Scalar.I1

_UNSIGNED = {Scalar.I32: "uint32_t", Scalar.I64: "uint64_t", Scalar.INDEX: "size_t"}
_SUMS = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.WRAP_ADD: "+", BinaryOp.WRAP_SUB: "-"}
_PRODUCTS = {BinaryOp.MUL: "*", BinaryOp.WRAP_MUL: "*"}
_WRAPPING = frozenset({BinaryOp.WRAP_ADD, BinaryOp.WRAP_SUB, BinaryOp.WRAP_MUL, BinaryOp.SHL})
_OTHERS = {
    BinaryOp.DIV: "/", BinaryOp.AND: "&", BinaryOp.OR: "|", BinaryOp.XOR: "^", BinaryOp.SHL: "<<",
    BinaryOp.SHR: ">>",
}
_EXTREMES = frozenset({BinaryOp.MIN, BinaryOp.MAX})
_SHIFTS = frozenset({BinaryOp.SHL, BinaryOp.SHR})
_LOGIC = {BinaryOp.AND: "&&", BinaryOp.OR: "||", BinaryOp.XOR: "!="}
_FLOAT_OPS = frozenset({
    BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MIN, BinaryOp.MAX
})
_UPDATES = {BinaryOp.ADD: "+=", BinaryOp.SUB: "-=", BinaryOp.MUL: "*="}
_COMPARE = {
    CompareOp.EQ: "==", CompareOp.NE: "!=", CompareOp.LT: "<", CompareOp.LE: "<=",
    CompareOp.GT: ">", CompareOp.GE: ">=",
}
_NUMBER = re.compile(r"_[0-9]+$")
_PLAIN_CALL = re.compile(r"\w+\((\{\d+\}(, \{\d+\})*)?\)")


def variable_type(type_: Scalar) -> str:
    """Returns the C type of a variable or parameter."""
    if type_ is Scalar.I1:
        return "bool"
    if type_.is_vector:
        return c_vectors.vector_type(type_)
    return INDEX_TYPE if type_ is Scalar.INDEX else STORAGE[type_]


class _CPrinter(Struct):
    kernel: Kernel
    symbol: str
    used: set[str]  # names that no other may have
    linkage: str
    int_bits: IntBits
    target: Target | None
    assembled: dict[str, str]  # functions of instructions that the file has, by their texts
    functions: list[str] = field(default_factory=list)  # more of these, that it calls
    portable: bool = False  # what is printed now is for compilers that don't take these
    needs: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)  # names of the kernel's variables and buffers

    def print(self) -> KernelText:
        body, uses = prune(self.kernel.body)
        self.known = {*uses.buffers, *uses.variables}
        unused = [b.name for b in self.kernel.buffers if b.name not in uses.buffers]
        unused += [p.name for p in self.kernel.params if p.name not in uses.variables]
        if any(type_.is_float for type_ in uses.types):
            self.needs.add(c_helpers.FLOATS)
        if self.int_bits < 32 and Scalar.F64 in uses.types:
            self.needs.add(c_helpers.DOUBLES)
        self.needs |= {c_vectors.types_key(type_) for type_ in uses.types if type_.is_vector}
        lines = [self._signature(), "{"]
        lines += [f"    (void){self._name(name)};" for name in unused]
        lines += self._body(body, "    ")
        lines.append("}")
        if self.linkage != "static":
            lines[:0] = [f"{lines[0]};", ""]
        doc = [layer_comment(self.kernel.doc)] if self.kernel.doc else []
        own = [line for text in self.functions for line in (text, "")]
        return KernelText("\n".join([*own, *doc, *lines]) + "\n", frozenset(self.needs))

    def declaration(self) -> KernelText:
        return KernelText(f"{self._signature()};\n", frozenset())

    # ---- names and declarations

    def _name(self, name: str) -> str:
        """Returns the C name of a variable or buffer; changed only where C or the file uses it
        already."""
        if name not in self.names:
            c_name = name
            while c_name in self.used or c_name.startswith("crt_"):
                c_name = f"v_{c_name}" if c_name.startswith("crt_") else f"{c_name}_"
            self.names[name] = c_name
            self.used.add(c_name)
        return self.names[name]

    def _declare(self, name: str) -> str:
        """Returns the C name of a variable from here to the end of its block.

        A number that only told it from variables of other blocks goes: C has scopes, kernels have
        not.
        """
        base = _NUMBER.sub("", name)
        if base != name and base in self.known:
            c_name, number = base, 1
            while c_name in self.used:
                number += 1
                c_name = f"{base}_{number}"
            if not c_name.startswith("crt_"):
                self.names[name] = c_name
                self.used.add(c_name)
        return self._name(name)

    def _signature(self) -> str:
        params = [self._pointer(b) for b in self.kernel.buffers]
        params += [f"{variable_type(p.type)} {self._name(p.name)}" for p in self.kernel.params]
        head = f"{self.linkage} CRT_KERNEL void {self.symbol}("
        line = f"{head}{', '.join(params) or 'void'})"
        if len(line) <= LINE:
            return line
        return head + "\n    " + ",\n    ".join(params) + ")"

    def _pointer(self, buffer: Buffer) -> str:
        const = "" if buffer.writable else "const "
        restrict = "" if buffer.name in self.kernel.overlapping else "restrict "
        return f"{const}{STORAGE[buffer.dtype]} *{restrict}{self._name(buffer.name)}"

    # ---- statements

    def _body(self, body: Body, indent: str) -> list[str]:
        """Returns the statements of a block, whose variables end with it."""
        used = set(self.used)
        lines = [line for stmt in body for line in self._stmt(stmt, indent)]
        self.used = used
        return lines

    def _stmt(self, stmt: Stmt, indent: str) -> Iterator[str]:
        match stmt:
            case kir.Let():
                yield from folded(f"const {self._definition(stmt.var, stmt.value)}", indent)
            case kir.Local():
                yield from folded(self._definition(stmt.var, stmt.value), indent)
            case kir.Assign():
                yield from folded(self._update(stmt.var, stmt.value), indent)
            case kir.Store():
                if not stmt.buffer.writable:
                    raise self._error(f"a store to the read-only buffer {stmt.buffer.name}")
                yield from folded(f"{self._element(stmt)} = {self._text(stmt.value)};", indent)
            case kir.StoreVector():
                place = self._element(stmt)
                store = self._vector_access(stmt.value.type, stmt.buffer, stores=True)
                value = self._text(stmt.value)
                yield from folded(f"{store}(&{place}, {value}, {stmt.count});", indent)
            case kir.For():
                yield from self._loop(stmt, indent)
            case kir.If():
                yield from self._branch(stmt, indent)
            case kir.Comment():
                yield block_comment([stmt.text], indent)
            case _:
                assert_never(stmt)

    def _definition(self, var: kir.Var, value: Expr) -> str:
        text = self._text(value)
        return f"{variable_type(var.type)} {self._declare(var.name)} = {text};"

    def _update(self, var: kir.Var, value: Expr) -> str:
        name = self._name(var.name)
        match value:
            case kir.Binary(op, a, b) if a == var and op in _UPDATES and var.type in kir.ARITHMETIC:
                return f"{name} {_UPDATES[op]} {self._text(b)};"
            case _:
                return f"{name} = {self._text(value)};"

    def _loop(self, loop: kir.For, indent: str) -> Iterator[str]:
        wanted = loop.assembled and self.target is not None and not self.portable
        made = assembled(loop, self.kernel, self.target) if wanted and self.target else None
        if made is None:
            yield from self._plain_loop(loop, indent)
            return
        self.needs.add(c_helpers.ASSEMBLY[made.extension])
        name = self._assembled(loop, made)
        args = [
            f"&{self._name(arg.buffer)}[{self._text(arg.index)}]" if arg.buffer
            else self._text(arg.index) for arg in made.arguments
        ]
        yield "#if CRT_ASSEMBLY"
        for idle in c_assembled.idle(loop, made):
            yield f"{indent}(void){self._name(idle)};"
        yield from folded(f"{name}({', '.join(args)});", indent)
        yield "#else"
        self.portable = True
        yield from self._plain_loop(loop, indent)
        self.portable = False
        yield "#endif"

    def _assembled(self, loop: kir.For, loop_function: Assembled) -> str:
        """Returns the name of the function that a loop is, and defines it if there is none of the
        same instructions."""
        text = c_assembled.function("{}", loop_function, self.kernel)
        name = self.assembled.get(text)
        if name is None:
            name = assembled_symbol(self.symbol, loop.var.name)
            while name in self.used:
                name += "_"
            self.assembled[text] = name
            self.functions.append(c_assembled.function(name, loop_function, self.kernel))
        self.used.add(name)
        return name

    def _plain_loop(self, loop: kir.For, indent: str) -> Iterator[str]:
        if loop.unroll is not None:
            self.needs.add(c_helpers.UNROLL)
            yield f"{indent}CRT_UNROLL({loop.unroll})"
        extent, used = self._operand(loop.extent), set(self.used)
        var = self._declare(loop.var.name)
        yield f"{indent}for ({INDEX_TYPE} {var} = 0; {var} < {extent}; ++{var}) {{"
        yield from self._body(loop.body, indent + "    ")
        yield f"{indent}}}"
        self.used = used

    def _branch(self, branch: kir.If, indent: str) -> Iterator[str]:
        yield from folded(f"if ({self._text(branch.condition)}) {{", indent)
        yield from self._body(branch.then, indent + "    ")
        if branch.other:
            yield f"{indent}}} else {{"
            yield from self._body(branch.other, indent + "    ")
        yield f"{indent}}}"

    # ---- expressions

    def _text(self, e: Expr) -> str:
        return self._expr(e)[0]

    def _operand(self, e: Expr, least: _Level = _UNARY) -> str:
        """Returns ``e``, in parentheses where it binds less tightly than ``least``."""
        text, level = self._expr(e)
        return text if level >= least else f"({text})"

    def _expr(self, e: Expr) -> _Text:
        match e:
            case kir.Var():
                return self._name(e.name), _PRIMARY
            case kir.Const():
                text = readable(e.value, e.type, self.int_bits)
                if needs_special(text):
                    self.needs.add(c_helpers.SPECIAL)
                return text, _UNARY if text[0] in "-(" else _PRIMARY
            case kir.Binary():
                return self._binary(e.op, e.a, e.b)
            case kir.Load():
                return self._element(e), _PRIMARY
            case kir.LoadWord():
                self.needs.add(c_helpers.WORD)
                if alignment(e) < 4:
                    return f"crt_load_word(&{self._element(e)})", _PRIMARY
                self.needs.add(c_helpers.ALIGNED_WORD)
                return f"crt_load_aligned_word(&{self._element(e)})", _PRIMARY
            case kir.LoadVector():
                load = self._vector_access(e.type, e.buffer, stores=False)
                return f"{load}(&{self._element(e)}, {e.count})", _PRIMARY
            case kir.Compare():
                return f"{self._operand(e.a)} {_COMPARE[e.op]} {self._operand(e.b)}", _COMPOUND
            case kir.Select():
                parts = map(self._operand, (e.condition, e.then, e.other))
                return "{} ? {} : {}".format(*parts), _COMPOUND
            case kir.Cast():
                return self._cast(e.value, e.type)
            case kir.Call():
                return self._call(e.name, e.args)
            case _:
                assert_never(e)

    def _element(self, place: kir.Touching) -> str:
        return f"{self._name(place.buffer.name)}[{self._text(place.index)}]"

    def _vector_access(self, type_: Scalar, buffer: Buffer, *, stores: bool) -> str:
        """Returns the function that loads or stores such a vector."""
        if stores and not buffer.writable:
            raise self._error(f"a store to the read-only buffer {buffer.name}")
        key = c_vectors.access_key(type_, buffer.dtype, stores=stores)
        self.needs |= {c_vectors.types_key(type_), key}
        return f"crt_{key}"

    def _binary(self, op: BinaryOp, a: Expr, b: Expr) -> _Text:
        type_ = a.type
        if type_ is _I1 and op in _LOGIC:
            return self._logic(op, a, b), _COMPOUND
        if type_ not in kir.ARITHMETIC or (type_.is_float and op not in _FLOAT_OPS):
            raise self._error(f"{op.value} of {type_.value}")
        if op in _EXTREMES:
            return self._extremum(op, a, b)
        if op in _WRAPPING and type_ in _UNSIGNED:
            return self._wrapping(op, a, b), _UNARY
        return self._plain(op, a, b)

    def _plain(self, op: BinaryOp, a: Expr, b: Expr) -> _Text:
        if op is BinaryOp.SUB and (divisor := _remainder(a, b)) is not None:
            return f"{self._operand(a)} % {self._operand(divisor)}", _COMPOUND
        if op in _SUMS:
            right = self._operand(b, _PRODUCT)
            if right.startswith("-"):
                right = f"({right})"
            return f"{self._operand(a, _SUM)} {_SUMS[op]} {right}", _SUM
        if op in _PRODUCTS:
            left = self._operand(a, _PRODUCT)
            return f"{left} {_PRODUCTS[op]} {self._operand(b)}", _PRODUCT
        right = self._count(b) if op in _SHIFTS else self._operand(b)
        return f"{self._operand(a)} {_OTHERS[op]} {right}", _COMPOUND

    def _count(self, e: Expr) -> str:
        """Returns a count to shift by; C doesn't mind its type, and readers like a plain number."""
        return str(e.value) if isinstance(e, kir.Const) else self._operand(e)

    def _logic(self, op: BinaryOp, a: Expr, b: Expr) -> str:
        """Returns conditions as text: chains of the same ``&&`` or ``||`` stay flat."""

        def side(e: Expr) -> str:
            chained = isinstance(e, kir.Binary) and e.op is op and op is not BinaryOp.XOR
            return self._text(e) if chained else self._operand(e)

        return f"{side(a)} {_LOGIC[op]} {side(b)}"

    def _extremum(self, op: BinaryOp, a: Expr, b: Expr) -> _Text:
        type_ = _saturated(a, b) if op is BinaryOp.MIN else None
        if type_ is not None and isinstance(a, kir.Binary):
            key = c_helpers.saturation_key(type_)
            self.needs.add(key)
            return f"crt_{key}({self._text(a.a)})", _PRIMARY
        left, right = self._operand(a), self._operand(b)
        if isinstance(a, kir.Const | kir.Var) and isinstance(b, kir.Const | kir.Var):
            first, second = (right, left) if op is BinaryOp.MIN else (left, right)
            return f"({first} < {second}) ? {right} : {left}", _COMPOUND
        key = c_helpers.extremum_key(op, a.type)
        self.needs.add(key)
        return f"crt_{key}({self._text(a)}, {self._text(b)})", _PRIMARY

    def _wrapping(self, op: BinaryOp, a: Expr, b: Expr) -> str:
        unsigned = _UNSIGNED[a.type]
        sign = "<<" if op is BinaryOp.SHL else (_SUMS | _PRODUCTS)[op]
        left = f"({unsigned}){self._operand(a)}"
        right = self._count(b) if op is BinaryOp.SHL else f"({unsigned}){self._operand(b)}"
        return f"({variable_type(a.type)})({left} {sign} {right})"

    def _cast(self, value: Expr, type_: Scalar) -> _Text:
        source = value.type
        if type_ is source:
            return self._expr(value)
        if type_ is Scalar.F16 and source is Scalar.F32:
            self.needs.add(c_helpers.F16_FROM_F32)
            return f"crt_f16_from_f32({self._text(value)})", _PRIMARY
        if type_ in (Scalar.F16, Scalar.I1):
            raise self._error(f"a cast from {source.value} to {type_.value}")
        if source is not Scalar.F16:
            return f"({variable_type(type_)}){self._operand(value)}", _UNARY
        self.needs.add(c_helpers.F32_FROM_F16)
        text = f"crt_f32_from_f16({self._text(value)})"
        if type_ is Scalar.F32:
            return text, _PRIMARY
        return f"({variable_type(type_)}){text}", _UNARY

    def _call(self, name: str, args: tuple[Expr, ...]) -> _Text:
        intrinsic = find_intrinsic(name)
        if intrinsic is None or len(args) != len(intrinsic.params):
            raise self._error(f"a call of {name!r} with {len(args)} arguments")
        self.needs.add(c_helpers.intrinsic_key(name))
        if _PLAIN_CALL.fullmatch(intrinsic.c_expression):
            texts = [self._text(arg) for arg in args]
            return intrinsic.c_expression.format(*texts), _PRIMARY
        texts = [self._operand(arg) for arg in args]
        return intrinsic.c_expression.format(*texts), _COMPOUND

    def _error(self, what: str) -> CrtExportError:
        return CrtExportError(f"C has no spelling for {what}", location=("kernel", self.symbol))


def _remainder(a: Expr, b: Expr) -> kir.Const | None:
    """Returns the c of ``a - a / c * c``, which is ``a % c``; None for others."""
    match b:
        case kir.Binary(BinaryOp.MUL, kir.Binary(BinaryOp.DIV, dividend, kir.Const() as c), factor):
            return c if dividend == a and factor == c else None
        case _:
            return None


def _saturated(lower: Expr, high: Expr) -> Scalar | None:
    """Returns the type to whose limits MIN of these two clamps a word; None if it doesn't."""
    match lower, high:
        case (
            kir.Binary(BinaryOp.MAX, value, kir.Const(low)), kir.Const(most)
        ) if value.type is Scalar.I32:
            found = (t for t, limits in c_helpers.SATURATED.items() if limits == (low, most))
            return next(found, None)
        case _:
            return None
