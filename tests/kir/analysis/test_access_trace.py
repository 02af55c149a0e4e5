"""Writing over one's own input is harmless where it is said to be: tried on kernels drawn statement
by statement, with branches that the data choose."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crtexport.kir import interpreter
from crtexport.kir.analysis.access_trace import Replay
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    const,
    gt,
    i32,
    load,
    load_vector,
    load_word,
    max_,
    select,
    shr,
)
from crtexport.kir.language import Buffer, Expr, Kernel, Scalar
from crtexport.kir.verifier import access_intervals

SIZE = 4

Statement = tuple[Any, ...]
copies = st.tuples(
    st.just("copy"), st.integers(0, SIZE - 2), st.booleans(), st.integers(0, SIZE - 2),
    st.booleans(),
)
vectors = st.tuples(
    st.just("vector"), st.integers(0, SIZE - 3), st.booleans(), st.integers(0, SIZE - 3),
    st.booleans(), st.integers(1, 2), st.integers(1, 2),
)
words = st.tuples(st.just("word"), st.integers(0, SIZE - 2), st.booleans(), st.integers(0, 3))
statements = st.recursive(
    st.one_of(copies, vectors, words),
    lambda parts: st.one_of(
        st.tuples(
            st.just("if"), st.integers(0, 1), st.lists(parts, max_size=2),
            st.lists(parts, max_size=2),
        ),
        st.tuples(
            st.just("where"), st.lists(parts, max_size=2), st.lists(parts, max_size=2),
        ),
        st.tuples(st.just("for"), st.lists(parts, min_size=1, max_size=2)),
    ),
    max_leaves=5,
)


def emit(
    b: KernelBuilder, body: list[Statement], buffers: tuple[Buffer, Buffer, Buffer], at: Expr
) -> None:
    """Statements at an index ``at``: 0, or that of the innermost loop, of two iterations. Branches
    are chosen by the data, or by the index, which can be followed."""
    x, choice, y = buffers
    for statement in body:
        match statement:
            case "copy", target, moves, source, reads_on:
                to = add(const(target), at) if moves else const(target)
                of = add(const(source), at) if reads_on else const(source)
                b.store(y, to, load(x, of))
            case "vector", target, moves, source, reads_on, loaded, stored:
                to = add(const(target), at) if moves else const(target)
                of = add(const(source), at) if reads_on else const(source)
                b.store_vector(y, to, load_vector(x, of, Scalar.I8X16, loaded), stored)
            case "word", target, moves, byte:
                to = add(const(target), at) if moves else const(target)
                word = b.let("word", load_word(x, const(0)))
                b.store(y, to, cast(shr(word, i32(8 * byte)), Scalar.I8))
            case "if", which, then, other:
                with b.if_(gt(cast(load(choice, const(which)), Scalar.I32), i32(0))):
                    emit(b, then, buffers, at)
                with b.else_():
                    emit(b, other, buffers, at)
            case "where", then, other:
                with b.if_(gt(at, const(0))):
                    emit(b, then, buffers, at)
                with b.else_():
                    emit(b, other, buffers, at)
            case "for", inner:
                with b.loop("i", 2) as i:
                    emit(b, inner, buffers, i)


def made(body: list[Statement]) -> Kernel:
    b = KernelBuilder("drawn")
    x = b.buffer("x", Scalar.I8, SIZE, noalias=False)
    choice = b.buffer("choice", Scalar.I8, 2)
    y = b.buffer("y", Scalar.I8, SIZE, writable=True, noalias=False)
    emit(b, body, (x, choice, y), const(0))
    return b.finish()


def same_in_place(kernel: Kernel, distance: int) -> bool:
    """Returns whether the output, ``distance`` bytes after the input, is what it is anywhere else
    where it is written at all."""
    for first in (0, 1):
        for second in (0, 1):
            choice = np.array([first, second], np.int8)
            x = np.arange(1, SIZE + 1).astype(np.int8)
            apart = np.zeros(SIZE, np.int8)
            interpreter.run(kernel, [x.copy(), choice, apart])
            memory = np.zeros(3 * SIZE, np.int8)
            memory[SIZE : 2 * SIZE] = x
            over = memory[SIZE + distance : 2 * SIZE + distance]
            interpreter.run(kernel, [memory[SIZE : 2 * SIZE], choice, over])
            written = apart != 0
            if (over[written] != apart[written]).any():
                return False
    return True


@settings(max_examples=150, deadline=None)
@given(body=st.lists(statements, min_size=1, max_size=3), distance=st.integers(1 - SIZE, SIZE - 1))
def test_what_is_called_harmless_changes_nothing(body: list[Statement], distance: int) -> None:
    kernel = made(body)
    if Replay(kernel).harmless(["y"], ["x"], SIZE, distance):
        assert same_in_place(kernel, distance)


@settings(max_examples=60, deadline=None)
@given(body=st.lists(statements, min_size=1, max_size=3))
def test_all_that_is_written_lies_in_the_proven_interval(body: list[Statement]) -> None:
    kernel = made(body)
    proven = access_intervals(kernel).get("y")
    y = np.zeros(SIZE, np.int8)
    interpreter.run(kernel, [np.arange(1, SIZE + 1).astype(np.int8), np.ones(2, np.int8), y])
    for index in np.flatnonzero(y):
        assert proven is not None
        assert proven.writes
        assert proven.lowest <= index <= proven.highest


def test_each_side_of_a_condition_runs_where_it_says() -> None:
    """Iteration 0 takes the second side, iteration 1 the first: it reads what was overwritten."""
    first, second = ("copy", 2, False, 0, False), ("copy", 0, False, 1, False)
    for sides, harmless in (((first, second), False), ((second, first), True)):
        body: list[Statement] = [("for", [("where", *([side] for side in sides))])]
        assert Replay(made(body)).harmless(["y"], ["x"], SIZE, 0) is harmless
        assert same_in_place(made(body), 0) is harmless


def test_a_vector_reads_and_writes_all_of_its_elements() -> None:
    """The second pair reads x[1], which the first wrote, or its second element did."""
    for first, distance, harmless in (
        (("vector", 1, False, 0, False, 1, 1), 0, False),
        (("vector", 0, False, 0, False, 1, 2), 0, False),
        (("vector", 0, False, 0, False, 1, 1), 0, True),
        (("vector", 0, False, 0, False, 2, 1), 0, True),
    ):
        body: list[Statement] = [first, ("vector", 2, False, 1, False, 2, 2)]
        assert Replay(made(body)).harmless(["y"], ["x"], SIZE, distance) is harmless
    late: list[Statement] = [("copy", 2, False, 0, False), ("vector", 0, False, 1, False, 2, 2)]
    assert not Replay(made(late)).harmless(["y"], ["x"], SIZE, 0)  # x[2] is its second element


def test_a_word_reads_all_of_its_bytes() -> None:
    overwrites: Statement = ("copy", 3, False, 0, False)
    for byte in range(4):
        reads: Statement = ("word", 0, False, byte)
        assert not Replay(made([overwrites, reads])).harmless(["y"], ["x"], SIZE, 0)
        assert Replay(made([reads, overwrites])).harmless(["y"], ["x"], SIZE, -SIZE)
    assert not same_in_place(made([overwrites, ("word", 0, False, 3)]), 0)


def test_what_follows_a_branch_comes_after_both_of_its_sides() -> None:
    last = ("copy", 0, False, 1, False)
    for sides in (([last], []), ([], [last]), ([last], [last]), ([last, last], [last])):
        body: list[Statement] = [("if", 0, *sides), ("copy", 2, False, 0, False)]
        assert not Replay(made(body)).harmless(["y"], ["x"], SIZE, 0)
        before: list[Statement] = [body[1], body[0]]
        assert Replay(made(before)).harmless(["y"], ["x"], SIZE, 0) is same_in_place(
            made(before), 0
        )


def test_an_index_that_data_select_may_be_either() -> None:
    """Iteration i reads x[i] or x[i + 1], and writes y[i]."""
    b = KernelBuilder("chosen")
    x = b.buffer("x", Scalar.I8, SIZE, noalias=False)
    choice = b.buffer("choice", Scalar.I8, 2)
    y = b.buffer("y", Scalar.I8, SIZE, writable=True, noalias=False)
    with b.loop("i", SIZE - 1) as i:
        which = b.let("which", max_(cast(load(choice, const(0)), Scalar.INDEX), const(0)))
        at = select(gt(which, const(0)), add(i, const(1)), i)
        b.store(y, i, load(x, at))
    kernel = b.finish()
    for distance, harmless in ((0, True), (-1, True), (1, False)):
        assert Replay(kernel).harmless(["y"], ["x"], SIZE, distance) is harmless
        assert same_in_place(kernel, distance) is harmless
