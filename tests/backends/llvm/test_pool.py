"""Workers belong to one set of options, and exports that run at the same time share nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crtexport.backends.llvm import pool as llvm_pool
from crtexport.backends.llvm.compile import compile_modules
from crtexport.backends.llvm.module import emit_llvm
from crtexport.backends.llvm.pool import POOL, WorkerPool
from crtexport.pipeline import driver
from tests.backends.llvm.llvm_support import TARGETS, model
from tests.cli.support import DIGITS
from tests.helpers import ROOT

OPTIONS = ((), ("-unroll-threshold=4000",), ("-disable-lsr", "-unroll-threshold=100"))


@pytest.fixture
def _no_idle_workers() -> Iterator[None]:
    POOL.close()
    yield
    POOL.close()


def code(options: tuple[str, ...], target: str = "m4") -> dict[str, bytes]:
    chosen = TARGETS[target]
    texts = emit_llvm(model(), chosen, "speed")
    return compile_modules(texts, chosen, "speed", llvm_options=options, jobs=1)


def alone(options: tuple[str, ...]) -> list[str]:
    """Digests of :func:`code` in a process that does nothing else."""
    program = (
        "import sys, hashlib\nfrom tests.backends.llvm.test_pool import code\n"
        "for data in code(tuple(sys.argv[1:])).values(): print(hashlib.sha256(data).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *options], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout.split()


def digests(made: dict[str, bytes]) -> list[str]:
    import hashlib

    return [hashlib.sha256(data).hexdigest() for data in made.values()]


@pytest.mark.usefixtures("_no_idle_workers")
def test_interleaved_and_concurrent_option_sets_give_what_each_gives_alone() -> None:
    expected = {options: alone(options) for options in OPTIONS}
    assert len({tuple(value) for value in expected.values()}) == len(OPTIONS), "no effect to see"
    order = [*OPTIONS, *OPTIONS]
    for options in order:
        assert digests(code(options)) == expected[options]
    with ThreadPoolExecutor(3) as threads:
        for options, made in zip(order, threads.map(code, order), strict=True):
            assert digests(made) == expected[options]


@pytest.mark.usefixtures("_no_idle_workers")
def test_a_worker_with_other_options_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above fails if options leak: here a pool lends any worker to anybody."""
    expected = code(())
    code(OPTIONS[1])
    take = WorkerPool._take
    monkeypatch.setattr(WorkerPool, "_take", lambda pool, _: take(pool, OPTIONS[1]))
    assert code(()) != expected


def test_exports_in_threads_equal_exports_alone(tmp_path: Path) -> None:
    def package(number: int) -> bytes:
        options = OPTIONS[number % len(OPTIONS)]
        path = tmp_path / f"{number}.tar"
        driver.export(
            DIGITS, board="mps2_an386", optimize="speed", emit="llvm", llvm_options=options,
            output=path,
        )
        return path.read_bytes()

    one_after_the_other = [package(number) for number in range(3)]
    assert len(set(one_after_the_other)) == 3
    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(package, range(6)))
    assert together == one_after_the_other * 2


def test_the_exporters_process_never_loads_llvm(tmp_path: Path) -> None:
    program = (
        "import sys, crtexport\n"
        f"crtexport.export({str(DIGITS)!r}, output=__import__('pathlib').Path(sys.argv[1]),"
        " llvm_options=['-disable-lsr'])\n"
        "print(sorted(m for m in sys.modules if m.startswith('llvmlite')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "x.tar"], check=True, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "[]\n"


def test_workers_are_used_again_and_few_are_kept() -> None:
    pool = WorkerPool(idle=2)
    with pool.worker(("-disable-lsr",)) as first, pool.worker(("-disable-lsr",)) as second:
        assert first is not second
    with pool.worker(("-disable-lsr",)) as again:
        assert again in (first, second)
    pool.warm()
    assert [worker.options for worker in pool._idle] == [("-disable-lsr",), ()]
    pool.close()
    assert pool._idle == []


def test_a_worker_may_start_before_anybody_knows_its_options() -> None:
    pool = WorkerPool()
    pool.start()
    pool.start()
    (early,) = pool._idle
    with pool.worker(("-disable-lsr",)) as first, pool.worker(()) as second:
        assert first is early
        assert second is not early
        first.set_up()
    pool.start()
    assert {worker.options for worker in pool._idle} == {(), ("-disable-lsr",)}
    pool.close()


def test_a_worker_is_not_used_again_after_an_exception() -> None:
    pool = WorkerPool()
    with pytest.raises(KeyError), pool.worker() as worker:
        raise KeyError
    assert worker._process.returncode is not None
    assert pool._idle == []


def test_a_forked_process_leaves_its_parents_workers_alone() -> None:
    pool = WorkerPool()
    pool.warm()
    (worker,) = pool._idle
    child = os.fork()
    if not child:
        os._exit(len(pool._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pool.worker() as mine:
        assert mine is worker
        mine.set_up()
    pool.close()


def test_workers_end_with_the_program() -> None:
    program = (
        "from crtexport.backends.llvm.pool import POOL\n"
        "POOL.warm()\nprint(POOL._idle[0]._process.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert not Path(f"/proc/{int(done.stdout)}").exists()


def test_a_list_without_options_is_no_reason_to_refuse_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_pool.Worker, "listing", lambda _: "USAGE: nothing")
    with pytest.raises(llvm_pool.CrtExportError, match="does not list its options"):
        llvm_pool.known_options.__wrapped__()


def test_workers_that_were_abandoned_are_not_lent_again() -> None:
    pool = WorkerPool()
    pool.warm()
    pool.abandon()
    with pool.worker() as worker:
        worker.set_up()
    pool.close()
