"""Selects instructions of Armv7-M and Armv7E-M for a loop of a kernel: blocks and loops of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from crtexport.kir import language as kir
from crtexport.kir.assembly.armv7em.addresses import Addresses, Linear
from crtexport.kir.assembly.armv7em.advance import advanced_by_loads
from crtexport.kir.assembly.armv7em.instructions import (
    COPY,
    ZERO,
    Argument,
    Branch,
    ConstantRegister,
    Instruction,
    Kind,
    Loop,
    Node,
    Register,
    UnsupportedError,
    added,
    blocks,
    constant,
    encodable,
    instructions,
    parts,
)
from crtexport.kir.assembly.armv7em.patterns import WORDS, bytes_of
from crtexport.kir.assembly.armv7em.spellings import STORES, Features
from crtexport.kir.assembly.armv7em.values import NARROW, Values
from crtexport.kir.builder import const
from crtexport.kir.language import BinaryOp, Expr, Scalar, Stmt
from crtexport.kir.walk import bodies, expressions, walk_expr


class Selected(Struct, frozen=True):
    """``body``: what a function does; ``arguments``: what it is given."""

    body: list[Node]
    arguments: tuple[Argument, ...]


def select(loop: kir.For, features: Features) -> Selected:
    """Returns the instructions of a loop. Raises UnsupportedError for what there are none for."""
    selector = _Selector(features, _uses(loop))
    selector.loop(loop)
    addresses = selector.addresses
    _number_iterations(addresses.root)
    addresses.place()
    _end_loops(addresses, addresses.root)
    _drop_unused(addresses.root.body)
    _begin_with_products(addresses.root.body)
    arguments = tuple(addresses.arguments)
    if features.dsp:  # elsewhere such loads take as long as the additions
        arguments = advanced_by_loads(addresses.root.body, arguments, addresses.element_sizes)
    return Selected(addresses.root.body, arguments)


def _uses(loop: kir.For) -> Counter[str]:
    """Returns how often each variable is named."""
    counts: Counter[str] = Counter()

    def count(stmts: tuple[Stmt, ...]) -> None:
        for stmt in stmts:
            for expr in expressions(stmt):
                counts.update(e.name for e in walk_expr(expr) if isinstance(e, kir.Var))
            for body in bodies(stmt):
                count(body)

    count((loop,))
    return counts


def _number_iterations(loop: Loop) -> None:
    """Counts iterations where their number is read."""
    body, loop.body = loop.body, []
    for node in body:
        for part in parts(node):
            _number_iterations(part)
        if isinstance(node, Loop) and node.iteration is not None:
            node.block.body.append(added(node.iteration, 1))
            loop.block.body.append(Instruction(ZERO, (node.iteration,), ()))
        loop.body.append(node)


def _end_loops(addresses: Addresses, loop: Loop) -> None:
    """Lets loops end: by the number of the iteration where that is read anyway, or counting down,
    where no pointer tells."""
    body, loop.body = loop.body, []
    for node in body:
        for part in parts(node):
            _end_loops(addresses, part)
        if isinstance(node, Loop):
            extent = node.extent
            if node.end is not None:
                pass
            elif not isinstance(extent, kir.Const):
                count = addresses.argument("", extent)
                loop.block.body.append(Instruction(COPY, (node.counter,), (count,)))
            elif node.iteration is not None and encodable(int(extent.value)):
                node.counter = node.iteration
                node.end = ConstantRegister("end", value=int(extent.value))
            else:
                loop.block.body.append(constant(node.counter, int(extent.value)))
            node.block.tail = [_ending(node)]
        loop.body.append(node)


def _ending(loop: Loop) -> Instruction:
    """Returns what decides whether a loop is repeated: while it doesn't find equality."""
    if loop.end is None:
        return Instruction("subs {w}, {0}, #1", (loop.counter,), (loop.counter,))
    if isinstance(loop.end, ConstantRegister):
        return Instruction(f"cmp {{0}}, #{loop.end.value}", (), (loop.counter,))
    return Instruction("cmp {0}, {1}", (), (loop.counter, loop.end))


def _drop_unused(nodes: list[Node]) -> None:
    """Removes what computes values that nothing reads."""
    while True:
        wanted = {register for one in instructions(nodes) for register in one.wanted}
        if not _without(nodes, wanted):
            return


def _begin_with_products(nodes: list[Node]) -> None:
    """Makes sums that begin with 0 begin with their first product, where both are in one block."""
    for block in blocks(nodes):
        zeros: dict[Register, Instruction] = {}
        saved: list[Instruction] = []
        for one in block.body:
            if one.text == ZERO:
                zeros[one.writes[0]] = one
                continue
            if one.alone and one.adds in zeros and one.writes == (one.adds,):
                saved.append(zeros[one.adds])
                one.text, one.reads, one.adds = one.alone, one.reads[:-1], None
            for register in (*one.wanted, *one.writes):
                zeros.pop(register, None)
        block.body[:] = [one for one in block.body if one not in saved]


def _without(nodes: list[Node], read: set[Register]) -> bool:
    changed = False
    for block in blocks(nodes):
        kept = [
            one for one in block.body if not one.writes or any(w in read for w in one.writes)
        ]
        changed |= len(kept) < len(block.body)
        block.body[:] = kept
    return changed


def _together(condition: Expr) -> Iterator[kir.Compare]:
    """Yields the comparisons that must all hold."""
    match condition:
        case kir.Compare():
            yield condition
        case kir.Binary(op=BinaryOp.AND):
            yield from _together(condition.a)
            yield from _together(condition.b)
        case _:
            raise UnsupportedError("a condition that isn't a comparison")


class _Selector(Values):
    """Goes through statements."""

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        for stmt in stmts:
            match stmt:
                case kir.Let():
                    self._let(stmt)
                case kir.Local():
                    register = Register(stmt.var.name, bits=stmt.bits or 32)
                    self.value(stmt.value, register)
                    self.values[stmt.var.name] = register
                    self.changing.add(stmt.var.name)
                case kir.Assign():
                    if stmt.var.name not in self.values:
                        raise UnsupportedError("a variable from outside changes")
                    self.value(stmt.value, self.values[stmt.var.name])
                case kir.Store():
                    self._store(stmt)
                case kir.For():
                    self.loop(stmt)
                case kir.If():
                    self._branch(stmt)
                case kir.Comment():
                    pass
                case _:
                    raise UnsupportedError(type(stmt).__name__)

    def _let(self, stmt: kir.Let) -> None:
        name = stmt.var.name
        if stmt.var.type is Scalar.INDEX:
            self.sums[name] = self.sum(stmt.value)
            return
        found = self.value(stmt.value, narrow=True)
        if found in (self.values[changing] for changing in self.changing):
            found = self._make("mov", None, found)
        self.values[name] = found
        if self._is_narrow(stmt.value):
            self.narrow.add(name)

    def loop(self, stmt: kir.For) -> None:
        """Emits a loop, or several copies of its body."""
        name, extent = stmt.var.name, stmt.extent
        if not isinstance(extent, kir.Const):
            if stmt.unroll not in (None, 1):
                raise UnsupportedError("copies of a loop whose extent isn't known")
            self._iterations(stmt, extent, 1)
            return
        count = int(extent.value)
        copies = min(stmt.unroll or 1, count)
        iterations = count // copies if copies else 0
        if iterations > 1:
            self._iterations(stmt, const(iterations), copies)
        for number in range(iterations * copies if iterations > 1 else 0, count):
            self.sums[name] = Linear(constant=number)
            self.body(stmt.body)

    def _iterations(self, stmt: kir.For, count: Expr, copies: int) -> None:
        outer = self.loops[-1]
        loop = Loop(outer.depth + 1, count)
        # Begun before the loop is: what is set for it stands in the block before.
        outer.block  # noqa: B018
        self.loops.append(loop)
        for number in range(copies):
            self.sums[stmt.var.name] = Linear(((loop, copies),), number)
            self.body(stmt.body)
        self.loops.pop()
        outer.body.append(loop)

    def _branch(self, stmt: kir.If) -> None:
        """Emits both sides of a condition: comparisons that must all hold."""
        outer = self.loops[-1]
        tests = [self.test(one) for one in _together(stmt.condition)]
        sides = []
        for body in (stmt.then, stmt.other):
            side = Loop(outer.depth + 1, const(1), repeated=False)
            self.loops.append(side)
            self.body(body)
            self.loops.pop()
            sides.append(side)
        outer.block.tail = [test for test, _ in tests]
        outer.body.append(Branch([code for _, code in tests], *sides))

    def _store(self, stmt: kir.Store) -> None:
        value, (name, size) = stmt.value, STORES.get(stmt.buffer.dtype, ("", 0))
        if not name:
            raise UnsupportedError(f"a store of {stmt.buffer.dtype.value}")
        while isinstance(value, kir.Cast) and self._keeps(value, size):
            value = value.value
        register = self.value(value, narrow=True)
        memory = self.addresses.memory(stmt.buffer, self.sum(stmt.index), size, self.loops)
        self._emit(Instruction(
            f"{name} {{0}}, [{{base}}, #{{at}}]", (), (register,), Kind.STORE, memory
        ))

    @staticmethod
    def _keeps(cast: kir.Cast, size: int) -> bool:
        """Returns whether a conversion leaves the lowest ``size`` bytes as they are."""
        source, type_ = cast.value.type, cast.type
        whole = source in (*WORDS, *NARROW) and type_ in (*WORDS, *NARROW)
        return whole and min(bytes_of(source), bytes_of(type_)) >= size

