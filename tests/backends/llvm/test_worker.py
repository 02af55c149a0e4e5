"""Compiling in worker processes: failures are errors with names, and nothing leaks between runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crtexport.backends.llvm import compile as llvm_compile
from crtexport.backends.llvm import pool as llvm_pool
from crtexport.backends.llvm import worker as llvm_worker
from crtexport.backends.llvm.compile import compilation, compile_modules
from crtexport.backends.llvm.elf import deactivate_sections
from crtexport.backends.llvm.module import emit_llvm
from crtexport.backends.llvm.pool import POOL
from crtexport.support.errors import CrtExportError, ToolMissingError
from crtexport.support.levels import LEVELS
from tests.backends.llvm.llvm_support import TARGETS, elf, model, objects

GOOD = "define i32 @good() {\n  ret i32 1\n}\n"
CANNOT_SELECT = (
    "declare i32 @llvm.arm.mve.vmldava.v16i8(i32, i32, i32, i32, <16 x i8>, <16 x i8>)\n"
    "define i32 @bad_kernel(<16 x i8> %a) {\n"
    "  %x = call i32 @llvm.arm.mve.vmldava.v16i8(i32 0, i32 0, i32 0, i32 0, <16 x i8> %a,"
    " <16 x i8> %a)\n  ret i32 %x\n}\n"
)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Starts and ends without workers that somebody has used."""
    POOL.close()
    yield monkeypatch
    POOL.close()


def test_fatal_errors_of_llvm_name_module_and_function() -> None:
    internal = CANNOT_SELECT.replace("define", "define internal")
    user = (
        "define i32 @run(<16 x i8> %a) {\n  %b = call i32 @bad_kernel(<16 x i8> %a)\n"
        "  ret i32 %b\n}\n"
    )
    text = GOOD + internal + user
    with pytest.raises(CrtExportError, match=r"x_lib0\.ll → bad_kernel: LLVM ended") as caught:
        compile_modules({"x_lib0.ll": text}, TARGETS["m4"], "size")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("optimize", LEVELS)
def test_functions_that_passes_dont_look_into_are_inlined_in_the_end(optimize: str) -> None:
    text = (
        'define weak hidden i32 @late(i32 %a) "crt-inline-late" memory(none) nounwind {\n'
        "  %r = mul i32 %a, %a\n  ret i32 %r\n}\n"
        "define weak i32 @kept() {\n  ret i32 2\n}\n"
        "define i32 @run(i32 %a) {\n"
        "  %b = call i32 @late(i32 %a)\n  %c = call i32 @kept()\n"
        "  %d = add i32 %b, %c\n  ret i32 %d\n}\n"
    )
    table = elf(compile_modules({"x.ll": text}, TARGETS["m4"], optimize)["x.o"])
    symbols = {s.name for s in table.get_section_by_name(".symtab").iter_symbols()}
    assert {"kept", "run"} <= symbols
    assert "late" not in symbols


def test_text_that_llvm_rejects_is_an_error() -> None:
    with pytest.raises(CrtExportError, match=r"x_lib0\.ll: LLVM does not accept a module: "):
        compile_modules({"x_lib0.ll": "define void @f( {"}, TARGETS["m4"], "size")


@pytest.mark.parametrize("jobs", [1, 3])
def test_all_failing_modules_are_named_and_others_compile_around_them(jobs: int) -> None:
    modules = {"a.ll": GOOD, "b.ll": CANNOT_SELECT, "c.ll": "nonsense", "d.ll": GOOD}
    with pytest.raises(CrtExportError, match=r"b\.ll") as caught:
        compile_modules(modules, TARGETS["m4"], "size", jobs=jobs)
    assert caught.value.hint == "1 more failed: c.ll"


@pytest.mark.parametrize("code", ["import os; os.kill(os.getpid(), 11)", "raise SystemExit(3)"])
def test_a_crash_is_an_error(code: str, fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(llvm_pool, "_COMMAND", (sys.executable, "-c", code))
    with pytest.raises(
        CrtExportError, match=r"x\.ll: LLVM ended while it started (by signal SIGSEGV|with exit)"
    ):
        compile_modules({"x.ll": "; nothing\n" * 10000}, TARGETS["m4"], "size")


HANGS = """
import time
from crtexport.backends.llvm import worker as llvm_worker
compile = llvm_worker._Compiler.compile
def patient(self, text):
    while "; for ever" in text:
        time.sleep(1)
    return compile(self, text)
llvm_worker._Compiler.compile = patient
llvm_worker.main()
"""
SLOW = "define internal i32 @slow(i32 %a) {\n  ; for ever\n  ret i32 %a\n}\n"
CALLER = "define i32 @run() {\n  %x = call i32 @slow(i32 1)\n  ret i32 %x\n}\n"


def test_a_hanging_worker_is_an_error_that_names_the_function(
    fresh: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fresh.setattr(llvm_pool, "_COMMAND", (sys.executable, "-c", HANGS))
    modules = {"a.ll": GOOD, "slow.ll": GOOD + SLOW + CALLER, "z.ll": GOOD}
    kept = tmp_path / "kept"
    with pytest.raises(
        CrtExportError, match=r"slow\.ll → slow: LLVM had not finished after 1.5 seconds"
    ) as caught:
        compile_modules(
            modules, TARGETS["m4"], "size", jobs=2, timeout=1.5, keep_failed=kept
        )
    assert caught.value.hint == f"its text is in {kept / 'slow.slow.ll'}"
    assert sorted(path.name for path in kept.glob("*.ll")) == ["slow.ll", "slow.slow.ll"]
    assert (kept / "slow.ll").read_text() == modules["slow.ll"]
    alone = (kept / "slow.slow.ll").read_text()
    assert "; for ever" in alone
    assert alone.count("unreachable") == 2


def test_the_text_that_llvm_crashes_on_is_kept(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="bad_kernel: LLVM ended"):
        compile_modules(
            {"b.ll": GOOD + CANNOT_SELECT}, TARGETS["m4"], "size", keep_failed=tmp_path
        )
    alone = (tmp_path / "b.bad_kernel.ll").read_text()
    with pytest.raises(CrtExportError, match="LLVM ended"):
        compile_modules({"again.ll": alone}, TARGETS["m4"], "size")


def test_the_texts_of_one_run_are_kept_and_nothing_of_the_users_is_lost(tmp_path: Path) -> None:
    def fail(*names: str) -> str:
        with pytest.raises(CrtExportError, match="does not accept a module") as caught:
            compile_modules(
                dict.fromkeys(names, "nonsense"), TARGETS["m4"], "size", keep_failed=tmp_path
            )
        return caught.value.hint or ""

    (tmp_path / "mine.ll").write_text("precious")
    assert f"its text is in {tmp_path / 'a.ll'}" in fail("a.ll", "b.ll")
    fail("c.ll")
    assert sorted(path.name for path in tmp_path.glob("*.ll")) == ["c.ll", "mine.ll"]
    hint = fail("mine.ll", "d.ll")
    assert "can't be kept" in hint
    assert "would be replaced: mine.ll" in hint
    assert (tmp_path / "mine.ll").read_text() == "precious"


def test_a_folder_that_can_not_be_written_hides_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CrtExportError, match="does not accept a module") as caught:
        compile_modules({"c.ll": "nonsense"}, TARGETS["m4"], "size", keep_failed=file)
    assert "LLVM's input can't be kept" in (caught.value.hint or "")


def test_nonsensical_numbers_are_refused() -> None:
    with pytest.raises(CrtExportError, match="0 seconds"):
        compile_modules({"a.ll": GOOD}, TARGETS["m4"], "size", timeout=0)
    with pytest.raises(CrtExportError, match="0 processes"):
        compile_modules({"a.ll": GOOD}, TARGETS["m4"], "size", jobs=0)


def test_without_llvmlite_the_error_says_what_to_do(
    tmp_path: Path, fresh: pytest.MonkeyPatch
) -> None:
    blocker = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'llvmlite':\n"
        "            raise ModuleNotFoundError('No module named llvmlite')\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    (tmp_path / "sitecustomize.py").write_text(blocker)
    fresh.setenv("PYTHONPATH", str(tmp_path))
    llvm_pool.known_options.cache_clear()
    with pytest.raises(ToolMissingError, match="No module named llvmlite") as caught:
        compile_modules({"x.ll": GOOD}, TARGETS["m4"], "size")
    with pytest.raises(ToolMissingError, match="No module named llvmlite"):
        llvm_pool.known_options()
    assert "--emit c" in str(caught.value)
    assert "pip install 'llvmlite" in str(caught.value)
    assert caught.value.exit_code == 3


def test_workers_find_the_package_from_anywhere(
    tmp_path: Path, fresh: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llvmlite.py").write_text("raise SystemExit('the folder of the user was imported')")
    fresh.chdir(tmp_path)
    fresh.delenv("PYTHONPATH", raising=False)
    assert compile_modules({"x.ll": GOOD}, TARGETS["m4"], "size")["x.o"][:4] == b"\x7fELF"


def test_importing_the_backend_does_not_import_llvmlite() -> None:
    import subprocess

    code = (
        "import sys, crtexport.backends.llvm.module, crtexport.backends.llvm.worker,"
        " crtexport.simulation.simulation; sys.exit('llvmlite' in sys.modules)"
    )
    root = str(Path(llvm_worker.__file__).parents[3])
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_any_number_of_workers_gives_the_same_objects() -> None:
    target = TARGETS["m4"]
    modules = emit_llvm(model(), target, "balanced")
    for jobs in (1, 2, 7):
        made = compile_modules(modules, target, "balanced", jobs=jobs)
        assert list(made.items()) == list(objects("m4").items())[:3]


def test_workers_keep_no_processor_from_one_request_to_the_next(
    fresh: pytest.MonkeyPatch,
) -> None:
    first, other, again = (
        compile_modules({"x.ll": GOOD}, TARGETS[name], "size", jobs=1)
        for name in ("m4", "m0", "m4")
    )
    assert first == again != other


def test_options_of_users_come_before_those_of_workers() -> None:
    sums_in_memory = (
        "define void @f(ptr noalias %sum, ptr noalias %x) {\nentry:\n  br label %loop\nloop:\n"
        "  %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n"
        "  %p = getelementptr inbounds i32, ptr %x, i32 %i\n"
        "  %a = load i32, ptr %sum\n  %b = load i32, ptr %p\n  %c = add i32 %a, %b\n"
        "  store i32 %c, ptr %sum\n  %next = add nuw nsw i32 %i, 1\n"
        "  %more = icmp slt i32 %next, 99\n  br i1 %more, label %loop, label %done\n"
        "done:\n  ret void\n}\n"
    )
    usual, same, promoted = (
        compile_modules({"x.ll": sums_in_memory}, TARGETS["m4"], "size", llvm_options=options)
        for options in ([], ["-disable-licm-promotion"], ["-disable-licm-promotion=false"])
    )
    assert usual == same != promoted


def test_arm_objects_have_neither_unwind_tables_nor_stack_notes() -> None:
    for name, expected in (("m4", set()), ("i386", {".note.GNU-stack"})):
        found = {s.name for s in elf(objects(name)["m_lib0.o"]).iter_sections()}
        assert {n for n in found if "exidx" in n or "note" in n} == expected
        assert ".eh_frame" not in found


def test_only_elf_objects_can_lose_sections() -> None:
    with pytest.raises(CrtExportError, match="not an ELF object"):
        deactivate_sections(b"MZ" + bytes(100), (".x",))


def test_modules_are_compiled_while_others_are_printed(fresh: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    run = llvm_pool.Worker.compile

    def noted(self: llvm_pool.Worker, request: dict[str, str], text: str, limit: float) -> bytes:
        begun.set()
        return run(self, request, text, limit)

    def printed() -> Iterator[tuple[str, str]]:
        yield "first.ll", GOOD
        assert begun.wait(60), "nobody works on the first module"
        yield "second.ll", GOOD

    fresh.setattr(llvm_pool.Worker, "compile", noted)
    with compilation(printed(), TARGETS["m4"], "size", jobs=1) as finish:
        assert list(finish(lambda _, data: data)) == ["first.o", "second.o"]


def test_leaving_early_drops_modules_that_are_not_begun(fresh: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    run = llvm_pool.Worker.compile

    def noted(self: llvm_pool.Worker, request: dict[str, str], text: str, limit: float) -> bytes:
        begun.append(text)
        return run(self, request, text, limit)

    fresh.setattr(llvm_pool.Worker, "compile", noted)
    modules = {f"m{number}.ll": f"{GOOD}; {number}\n" for number in range(40)}
    with (
        pytest.raises(RuntimeError, match="enough"),
        compilation(modules.items(), TARGETS["m4"], "size", jobs=1),
    ):
        raise RuntimeError("enough")
    assert len(begun) < len(modules)
    assert compile_modules({"x.ll": GOOD}, TARGETS["m4"], "size")["x.o"][:4] == b"\x7fELF"


def test_of_modules_that_wait_that_with_most_instructions_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    begun, printed = threading.Event(), threading.Event()

    def run(_job: object, name: str, _text: str) -> bytes:
        begun.set()
        printed.wait(60.0)
        order.append(name)
        return b""

    def modules() -> Iterator[tuple[str, str]]:
        yield "first.ll", ""
        begun.wait(60.0)
        yield from (("table.ll", f"; {'x' * 999}\n"), ("short.ll", "\n" * 3), ("long.ll", "\n" * 9))

    monkeypatch.setattr(llvm_compile._Job, "run", run)
    with compilation(modules(), TARGETS["m4"], "size", jobs=1) as finish:
        printed.set()
        made = finish(lambda _name, data: data)
    assert order == ["first.ll", "long.ll", "short.ll", "table.ll"]
    assert list(made) == ["first.o", "table.o", "short.o", "long.o"]
