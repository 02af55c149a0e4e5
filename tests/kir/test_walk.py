"""Walking over kernels, rewriting them, and indices as linear sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crtexport.kir.builder import KernelBuilder, const, load, lt
from crtexport.kir.language import (
    Binary,
    BinaryOp,
    Body,
    Comment,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Local,
    Scalar,
    Stmt,
    Store,
    Var,
)
from crtexport.kir.linear_form import linear_form, split_constant
from crtexport.kir.walk import has_loop, map_bodies, map_expressions, rewrite, variables, walk
from tests.kir.test_text import everything

VALUES = {"i": 3, "j": -5, "k": 11}
NUMBERS = st.integers(-4, 4).map(const)
INDICES: st.SearchStrategy[Expr] = st.recursive(
    NUMBERS | st.sampled_from([Var(name, Scalar.INDEX) for name in VALUES]),
    lambda inner: st.builds(
        Binary, st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL]), inner, inner
    ) | st.builds(Binary, st.just(BinaryOp.MUL), inner, NUMBERS),
    max_leaves=12,
)


def value(expr: Expr) -> int:
    match expr:
        case Const(value=number):
            return int(number)
        case Var(name=name):
            return VALUES[name]
        case Binary(op=BinaryOp.ADD, a=a, b=b):
            return value(a) + value(b)
        case Binary(op=BinaryOp.SUB, a=a, b=b):
            return value(a) - value(b)
        case Binary(op=BinaryOp.MUL, a=a, b=b):
            return value(a) * value(b)
        case _:
            raise TypeError(expr)


@given(INDICES)
def test_a_linear_form_is_the_index(index: Expr) -> None:
    terms, constant = linear_form(index)
    assert constant + sum(factor * value(term) for term, factor in terms) == value(index)
    for term, _ in terms:
        match term:
            case Var():
                pass
            case Binary(op=BinaryOp.MUL, b=factor):
                assert not isinstance(factor, Const)
            case _:
                raise AssertionError(f"{term} is no term")


@given(INDICES)
def test_a_split_index_has_no_constant_added_last(index: Expr) -> None:
    rest, added = split_constant(index)
    assert value(rest) + added == value(index)
    match rest:
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB, b=last):
            assert not isinstance(last, Const)
        case _:
            pass


def example() -> Kernel:
    b = KernelBuilder("example")
    source = b.buffer("source", Scalar.I32, 8)
    target = b.buffer("target", Scalar.I32, 8, writable=True)
    b.comment("outside")
    with b.loop("i", 8) as i:
        with b.if_(lt(i, const(4))):
            b.store(target, i, load(source, i))
        with b.else_():
            b.comment("inside")
            b.store(target, i, const(0, Scalar.I32))
    return b.finish()


def test_every_statement_is_met_before_those_in_it() -> None:
    kinds = [type(stmt) for stmt in walk(example().body)]
    assert kinds == [Comment, For, If, Store, Comment, Store]


def test_rewriting_replaces_inner_statements_first() -> None:
    met: list[type[Stmt]] = []

    def change(stmt: Stmt) -> Body:
        met.append(type(stmt))
        return () if isinstance(stmt, Comment) else (stmt, stmt)

    changed = rewrite(example().body, change)
    assert met == [Comment, Store, Comment, Store, If, For]
    assert [type(stmt) for stmt in walk(changed)].count(Store) == 2 * 2 * 2 * 2
    assert not any(isinstance(stmt, Comment) for stmt in walk(changed))


def test_rewriting_to_the_same_statements_changes_nothing() -> None:
    body = example().body
    assert rewrite(body, lambda stmt: (stmt,)) == body


def test_loops_and_variables_are_found_at_any_depth() -> None:
    body = example().body
    assert has_loop(body)
    assert not has_loop(rewrite(body, lambda stmt: () if isinstance(stmt, For) else (stmt,)))
    i = Var("i", Scalar.INDEX)
    assert variables(Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, i, const(2)), const(1))) == {"i"}


def test_changing_expressions_keeps_all_else_of_a_statement() -> None:
    kernel = everything()
    statements = list(walk(kernel.body))
    assert any(isinstance(stmt, Local) and stmt.bits for stmt in statements)
    for stmt in statements:
        assert map_expressions(stmt, lambda expr: expr) == stmt
        assert map_bodies(stmt, lambda body: body) == stmt
