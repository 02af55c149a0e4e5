"""Objects of every target keep the contract: nothing happens before run, and linkers agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.mlf.objects import object_facts
from crtexport.support.levels import LEVELS
from tests.backends.llvm.llvm_support import (
    GCC,
    INPUTS,
    OUTPUTS,
    TARGETS,
    elf,
    model_input,
    model_outputs,
    objects,
)
from tests.helpers import ROOT, require

SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
ARM = [name for name in GCC if name.startswith("m")]
ATTRIBUTES = (  # what decides whether objects fit together
    "TAG_CPU_ARCH", "TAG_CPU_ARCH_PROFILE", "TAG_THUMB_ISA_USE", "TAG_FP_ARCH", "TAG_MVE_ARCH",
    "TAG_WMMX_ARCH", "TAG_ADVANCED_SIMD_ARCH", "TAG_ABI_VFP_ARGS", "TAG_ABI_HARDFP_USE",
    "TAG_ABI_ALIGN_NEEDED", "TAG_ABI_ALIGN_PRESERVED", "TAG_ABI_FP_NUMBER_MODEL",
)


def _attributes(file: ELFFile) -> dict[str, object]:
    section = file.get_section_by_name(".ARM.attributes")
    found = {
        a.tag: a.value for s in section.iter_subsections() for ss in s.iter_subsubsections()
        for a in ss.iter_attributes()
    }
    return {tag: found.get(tag, 0) for tag in ATTRIBUTES}


def _undefined_of_others(data: dict[str, bytes]) -> set[str]:
    facts = [object_facts(name, content) for name, content in data.items()]
    defined = {s for f in facts for s in (*f.defined, *f.hidden)}
    return {s for f in facts for s in f.undefined} - defined


@pytest.mark.parametrize("optimize", LEVELS)
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_happens_before_run(target: str, optimize: str) -> None:
    data = objects(target, optimize)
    assert list(data) == ["m_lib0.o", "m_lib1.o", "m_lib2.o", "m_constants.o"]
    for name, content in data.items():
        for section in elf(content).iter_sections():
            flags = section["sh_flags"]
            if flags & SHF_ALLOC:
                assert section["sh_size"] == 0 or section.name.startswith(
                    (".text", ".rodata", ".bss.tvmgen_m.workspace", ".data.rel.ro")
                ), (name, section.name)
            if flags & SHF_WRITE and not section.name.startswith(".data.rel.ro"):
                assert section["sh_type"] == "SHT_NOBITS"
            assert not (flags & SHF_WRITE and flags & SHF_EXECINSTR)
            if section.name.startswith(".data.rel.ro"):
                assert target == "host"  # position-independent code: the loader relocates tables
    assert object_facts("", data["m_lib0.o"]).sections[".bss"] == 40


@pytest.mark.parametrize("target", TARGETS)
def test_symbols_are_the_promised_ones(target: str) -> None:
    for optimize in ("size", "speed"):
        data = objects(target, optimize)
        defined = [object_facts(name, content).defined for name, content in data.items()]
        assert defined == [
            ("tvmgen_m_run", "tvmgen_m_run_packed"), ("tvmgen_m_get_c_metadata",),
            ("TVMSystemLibEntryPoint",), (),
        ]
        assert _undefined_of_others(data) <= set(UNDEFINED_ALLOWED)
    if target in ("host", "i386", "i386sse"):
        assert _undefined_of_others(objects(target)) <= {"memcpy", "memset", "memmove"}


@pytest.mark.parametrize("target", TARGETS)
def test_header_says_the_abi(target: str) -> None:
    machine, flags = {
        "host": ("EM_X86_64", 0), "i386": ("EM_386", 0), "i386sse": ("EM_386", 0),
        "rv32": ("EM_RISCV", 1),
    }.get(target, ("EM_ARM", 0x05000000))
    for name in ("m_lib0.o", "m_constants.o"):
        header = elf(objects(target)[name]).header
        assert (header["e_machine"], header["e_flags"]) == (machine, flags)


@pytest.mark.parametrize("target", ARM)
def test_build_attributes_are_those_of_gcc(target: str, tmp_path: Path) -> None:
    source = tmp_path / "f.c"
    source.write_text("float f(float a, double b) { return a * (float)b; }\n")
    compiler, *flags = GCC[target]
    result = tmp_path / "f.o"
    subprocess.run([require(compiler), *flags, "-mthumb", "-c", source, "-o", result], check=True)
    expected = _attributes(elf(result.read_bytes()))
    for name, content in objects(target).items():
        if name != "m_constants.o":  # which fits all
            assert _attributes(elf(content)) == expected


@pytest.mark.parametrize("target", GCC)
def test_other_objects_link_without_a_word(target: str, tmp_path: Path) -> None:
    app = tmp_path / "app.c"
    app.write_text(
        "extern int tvmgen_m_run(void **, void **);\n"
        "extern const void *TVMSystemLibEntryPoint(void);\n"
        "void *memcpy(void *d, const void *s, __SIZE_TYPE__ n) { char *p = d; const char *q = s;"
        " while (n--) *p++ = *q++; return d; }\n"
        "void *memset(void *d, int c, __SIZE_TYPE__ n) { char *p = d; while (n--) *p++ = (char)c;"
        " return d; }\n"
        "static char x[64], y[10], z[20];\n"
        "void _start(void) { void *in[] = {x}, *out[] = {y, z};\n"
        "  while (TVMSystemLibEntryPoint()) tvmgen_m_run(in, out); }\n"
    )
    files = []
    for name, content in objects(target).items():
        files.append(tmp_path / name)
        files[-1].write_bytes(content)
    compiler, *flags = GCC[target]
    done = subprocess.run(
        [
            require(compiler), *flags, "-fno-builtin", "-nostdlib", "-static", "-Wl,--gc-sections",
            "-Wl,--fatal-warnings", app, *files, *([] if target == "i386" else ["-lgcc"]),
            "-o", tmp_path / "app.elf",
        ],
        capture_output=True, text=True, check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    linked = elf((tmp_path / "app.elf").read_bytes())
    assert not (linked.get_section_by_name(".data") or {"sh_size": 0})["sh_size"]


_FREESTANDING = """
static int call(int n, int a, void *b, int c)
{
    int r;
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory");
    return r;
}
extern int tvmgen_m_run(void **, void **);
void *memcpy(void *d, const void *s, __SIZE_TYPE__ n)
{ char *p = d; const char *q = s; while (n--) *p++ = *q++; return d; }
static char x[INPUTS], y[OUTPUTS], z[2 * OUTPUTS];
static void body(void)
{
    void *in[] = {x}, *out[] = {y, z};
    call(3, 0, x, sizeof x);
    if (tvmgen_m_run(in, out) == 0) {
        call(4, 1, y, sizeof y);
        call(4, 1, z, sizeof z);
    }
    call(1, 0, 0, 0);
}
/* The stack is aligned to four bytes only, as some kernels of operating systems leave it. */
__asm__(".globl _start\\n_start: andl $-16, %esp\\n subl $4, %esp\\n call body\\n");
"""


@pytest.mark.parametrize("optimize", LEVELS)
@pytest.mark.parametrize("target", ["i386", "i386sse"])
def test_i386_code_runs_on_a_badly_aligned_stack(
    target: str, optimize: str, tmp_path: Path
) -> None:
    main = tmp_path / "main.c"
    main.write_text(_FREESTANDING.replace("static void body", "__attribute__((used)) void body"))
    data = objects(target, optimize)
    for name, content in data.items():
        (tmp_path / name).write_bytes(content)
    compiler, *flags = GCC["i386"]
    program = tmp_path / "program"
    subprocess.run(
        [
            require(compiler), *flags, f"-DINPUTS={INPUTS}", f"-DOUTPUTS={OUTPUTS}", "-nostdlib",
            "-static", "-fno-builtin", "-fno-stack-protector", "-mpreferred-stack-boundary=2",
            main, tmp_path / "m_lib0.o", tmp_path / "m_constants.o", "-o", program,
        ],
        check=True,
    )
    try:
        done = subprocess.run(
            [program], input=model_input().tobytes(), capture_output=True, check=False
        )
    except OSError as error:
        pytest.skip(f"32-bit programs don't run here ({error.strerror})")
    y, half = model_outputs(model_input())
    assert done.stdout[:OUTPUTS] == y.tobytes()
    # The x87 keeps more digits than a float: halves may differ in the last place.
    got = np.frombuffer(done.stdout[OUTPUTS:], np.float16)
    np.testing.assert_allclose(got.astype(np.float32), half.astype(np.float32), rtol=1e-3)


def test_i386_code_uses_no_vector_unit_and_integers_no_x87(tmp_path: Path) -> None:
    path = tmp_path / "lib0.o"
    for optimize in LEVELS:
        path.write_bytes(objects("i386", optimize)["m_lib0.o"])
        command = [require("objdump"), "-d", "--no-show-raw-insn", path]
        listing = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        assert "%xmm" not in listing
        assert "%mm" not in listing
        dense = listing.split("<m_dense>:")[1].split("\n\n")[0]
        assert "st(" not in dense
        assert "%st" not in dense


def test_64_bit_products_are_made_inline() -> None:
    needs = {name: _undefined_of_others(objects(name, "speed")) for name in TARGETS}
    assert not {"__muldi3", "__aeabi_lmul"} & set().union(*needs.values())


_EXPORT = """
import hashlib, sys
from tests.backends.llvm.llvm_support import TARGETS, model
from crtexport.backends.llvm.module import emit_llvm
from crtexport.backends.llvm.compile import compile_modules
target = TARGETS[sys.argv[1]]
data = compile_modules(emit_llvm(model(), target, "speed"), target, "speed", jobs=int(sys.argv[2]))
for name, content in data.items():
    print(name, hashlib.sha256(content).hexdigest())
"""


@pytest.mark.parametrize("target", ["host", "m55"])
def test_bytes_depend_on_neither_hash_seed_nor_folder_nor_workers(
    target: str, tmp_path: Path
) -> None:
    answers = set()
    for seed, jobs, folder in (("0", "1", ROOT), ("1", "3", tmp_path), ("77", "2", tmp_path)):
        done = subprocess.run(
            [sys.executable, "-c", _EXPORT, target, jobs], cwd=folder, check=True,
            capture_output=True, text=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert answers.pop().count("\n") == 3


def test_objects_hold_no_path() -> None:
    for content in objects("m4").values():
        symbols = elf(content).get_section_by_name(".symtab")
        files = [s.name for s in symbols.iter_symbols() if s["st_info"]["type"] == "STT_FILE"]
        assert all(file.startswith("m_lib") for file in files)
        assert str(ROOT).encode() not in content
