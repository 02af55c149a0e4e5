"""C for processors whose ``int`` has 16 bits: it computes there what it computes everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crtexport.backends.c.helpers import DOUBLES
from crtexport.backends.c.kernel import print_kernel
from crtexport.backends.c.source import emit_c
from crtexport.kir import interpreter
from crtexport.kir.builder import (
    KernelBuilder,
    add,
    cast,
    clamp,
    const,
    gt,
    i32,
    load,
    max_,
    min_,
    mul,
    select,
)
from crtexport.kir.language import Kernel, Scalar
from crtexport.kir.verifier import KernelError, verify, verify_narrow
from crtexport.support.errors import CrtExportError
from tests.backends.c import avr_support
from tests.backends.c.avr_support import MCU, fits, run_on_avr, tools
from tests.backends.c.c_support import assert_same, network, run_tool, write
from tests.differential.cases import CASES
from tests.differential.network import Step
from tests.differential.test_backends import steps_of
from tests.kir.strategies import Case, cases

GROUPS = 6
IN_DOUBLE = ("floor_div", "floor_mod", "pow_")  # of floats; AVR's older compilers lack it


def _tables(step: Step) -> dict[str, tuple[int, int]]:
    """Returns what the tables contain from which positions may come."""
    return {
        buffer.name: (int(array.min()), int(array.max()))
        for buffer, array in zip(step.kernel.buffers, step.before, strict=True)
        if buffer.dtype is Scalar.U16 and not buffer.writable and array.size
    }


def _doubles(kernel: Kernel) -> bool:
    return DOUBLES in print_kernel(kernel, "k", int_bits=16).needs


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_operator_gives_on_avr_what_the_interpreter_gives(
    group: int, tmp_path: Path
) -> None:
    tools()
    steps: list[Step] = []
    for name in list(CASES)[group::GROUPS]:
        found = [s for s in steps_of(name, tmp_path)[::3] if not _doubles(s.kernel)]
        assert found or name in IN_DOUBLE
        steps += found
    for step in steps:
        verify_narrow(step.kernel, _tables(step), 16)
        assert fits(step.before)
    results = run_on_avr([(s.kernel, s.before, ()) for s in steps], tmp_path)
    for step, result in zip(steps, results, strict=True):
        for found, wanted in zip(result, step.after, strict=True):
            assert_same(found, wanted)


def _narrow(case: Case) -> bool:
    try:
        verify_narrow(case.kernel, case.bounds, 16)
    except KernelError:
        return False
    return fits(list(case.arrays.values())) and not _doubles(case.kernel)


@settings(
    max_examples=3, deadline=None, suppress_health_check=[*HealthCheck], phases=[Phase.generate]
)
@given(drawn=st.lists(cases(half=True), min_size=20, max_size=30))
def test_random_kernels_do_on_avr_what_the_interpreter_does(drawn: list[Case]) -> None:
    tools()
    drawn = [case for case in drawn if _narrow(case)]
    with TemporaryDirectory() as folder:
        given_ = [
            (c.kernel, [c.arrays[b.name] for b in c.kernel.buffers], c.params) for c in drawn
        ]
        # No operator asks whether an unsigned number is below 0; what is drawn may.
        results = run_on_avr(given_, Path(folder), "-Wno-type-limits")
    for case, result in zip(drawn, results, strict=True):
        wanted = case.buffers()
        interpreter.run(case.kernel, wanted, case.params)
        for buffer, found in zip(case.kernel.buffers, result, strict=True):
            assert_same(found, wanted[buffer.name])


def _words() -> Kernel:
    """300 * 300, 1 << 20 and 300 * 100 + 30000, of choices between literals."""
    b = KernelBuilder("words")
    x = b.buffer("x", Scalar.I32, 1)
    y = b.buffer("y", Scalar.I32, 3, writable=True)
    positive = gt(load(x, const(0)), i32(0))
    chosen = select(positive, i32(300), i32(7))
    b.store(y, const(0), mul(chosen, i32(300)))
    b.store(y, const(1), mul(select(positive, i32(1024), i32(2)), i32(1024)))
    b.store(y, const(2), add(mul(chosen, i32(100)), i32(30000)))
    return b.finish()


def test_words_between_literals_have_32_bits_on_avr(tmp_path: Path) -> None:
    """``int`` would compute something else."""
    kernel = _words()
    arrays = [np.array([1], np.int32), np.zeros(3, np.int32)]
    (result,) = run_on_avr([(kernel, arrays, ())], tmp_path)
    assert result[1].tolist() == [90000, 1 << 20, 60000]


@pytest.mark.parametrize("changes", [{}, {"workspace_caller": True}])
def test_a_model_compiles_for_avr_without_a_warning(
    changes: dict[str, bool], tmp_path: Path
) -> None:
    compiler, _ = tools()
    artifact = network(**changes)
    write(artifact, tmp_path)
    for name, text in emit_c(artifact, int_bits=16).items():
        (tmp_path / name).write_text(text)
        avr_support.compiled(tmp_path / name, *avr_support.INCLUDES, f"-I{tmp_path}")
    assert compiler


def test_doubles_that_are_floats_are_an_error_of_the_compiler(tmp_path: Path) -> None:
    compiler, _ = tools()
    path = tmp_path / "double.c"
    b = KernelBuilder("double")
    x = b.buffer("x", Scalar.F64, 1, writable=True)
    b.store(x, const(0), mul(load(x, const(0)), load(x, const(0))))
    kernel = b.finish()
    path.write_text(avr_support.kernels_text([(kernel, [], ())]))
    with pytest.raises(AssertionError, match="this model needs a double of 64 bits"):
        run_tool(compiler, f"-mmcu={MCU}", "-c", path, "-o", tmp_path / "x.o")
    assert "double of 64" not in "".join(emit_c(network(), int_bits=16).values())


def test_literals_are_plain_where_int_has_32_bits() -> None:
    plain = print_kernel(_words(), "k").text
    explicit = print_kernel(_words(), "k", int_bits=16).text
    assert "INT32_C" not in plain
    assert "INT32_C(300)" in explicit
    again = re.sub(r"U?INT32_C\((\d+)\)", r"\1", explicit)
    assert again.split() == plain.split()


def _indexed(how: str) -> Kernel:
    """A kernel whose accesses are inside its buffers, by way of an index that ``how`` says."""
    b = KernelBuilder("indexed")
    x = b.buffer("x", Scalar.I32, 10)
    t = b.buffer("t", Scalar.U16, 10)
    y = b.buffer("y", Scalar.I32, 10, writable=True)
    with b.loop("i", 10) as i:
        if how == "product":
            at = clamp(mul(add(i, const(1)), const(4000)), 0, 9)
        elif how == "data":
            at = clamp(cast(load(x, i), Scalar.INDEX), 0, 9)
        elif how == "table":
            at = min_(cast(load(t, i), Scalar.INDEX), const(9))
        else:
            most = b.local("most", i32(0))
            with b.loop("j", 3):
                value = clamp(load(x, i), 0, 5)
                step = max_(most, value) if how == "most" else add(most, value)
                b.assign(most, step)
            at = clamp(cast(most, Scalar.INDEX), 0, 9)
        b.store(y, i, load(x, at))
    return b.finish()


@pytest.mark.parametrize(("how", "known", "problem"), [
    ("product", {}, "from 4000 to 40000"),
    ("data", {}, "from -2147483648 to 2147483647"),
    ("table", {"t": (0, 32768)}, "from 0 to 32768"),
    ("table", {"t": (0, 32767)}, None),
    ("sum", {}, "from -2147483648 to 2147483647"),
    ("most", {}, None),
])
def test_positions_are_proven_to_fit_16_bits(
    how: str, known: dict[str, tuple[int, int]], problem: str | None
) -> None:
    kernel = _indexed(how)
    verify(kernel)
    verify_narrow(kernel, known, 32 if how == "product" else 64)
    if problem is None:
        verify_narrow(kernel, known, 16)
        return
    with pytest.raises(KernelError, match=problem):
        verify_narrow(kernel, known, 16)


def test_positions_that_are_parameters_count() -> None:
    b = KernelBuilder("shifted")
    y = b.buffer("y", Scalar.I32, 10, writable=True)
    n = b.param("n", Scalar.INDEX)
    b.store(y, clamp(add(n, const(1)), 0, 9), i32(1))
    kernel = b.finish()
    verify_narrow(kernel, {"n": 32766}, 16)
    with pytest.raises(KernelError, match="from 32768 to 32768"):
        verify_narrow(kernel, {"n": 32767}, 16)


def test_what_is_too_large_is_refused_by_its_name() -> None:
    with pytest.raises(CrtExportError, match="takes 32,768 bytes, and arrays have at most 32,767"):
        emit_c(network(workspace_size=32768), int_bits=16)
    emit_c(network(workspace_size=32768))
