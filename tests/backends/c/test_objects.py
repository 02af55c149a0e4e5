"""The objects of generated C have nothing to initialise, nothing undeclared."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtexport.artifact import abi
from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.backends.c.source import emit_registry
from tests.backends.c.c_support import (
    call_run,
    compile_object,
    network,
    shared_library,
    writable_sections,
    write,
)


def symbols(path: Path) -> tuple[set[str], set[str]]:
    """Names of the global symbols that an object defines, and of those that it lacks."""
    defined, undefined = set(), set()
    with path.open("rb") as stream:
        for section in ELFFile(stream).iter_sections():
            if isinstance(section, SymbolTableSection):
                for symbol in section.iter_symbols():
                    if symbol["st_info"]["bind"] == "STB_GLOBAL":
                        missing = symbol["st_shndx"] == "SHN_UNDEF"
                        (undefined if missing else defined).add(symbol.name)
    return defined, undefined


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm", "riscv"])
def test_only_the_workspace_can_be_written_and_nothing_runs_before_main(
    compiler: str, tmp_path: Path
) -> None:
    flags = ("-Os", "-fno-pic", "-fno-pie") if compiler in ("gcc", "clang") else ("-Os",)
    for path in write(network(), tmp_path):
        result = compile_object(path, compiler, *flags)
        sections = writable_sections(result)
        assert sections == ({b".bss": 32} if path.name == "demo_lib0.c" else {})
        with result.open("rb") as stream:
            names = {s.name for s in ELFFile(stream).iter_sections()}
        assert not {n for n in names if "init" in n or "ctors" in n}


def test_objects_define_and_lack_only_what_they_announce(tmp_path: Path) -> None:
    results = [compile_object(p, "arm", "-Os") for p in write(network(), tmp_path)]
    defined, undefined = (set().union(*names) for names in zip(*map(symbols, results), strict=True))
    assert defined == {
        "tvmgen_demo_run", "tvmgen_demo_run_packed", "tvmgen_demo_get_c_metadata",
        "TVMSystemLibEntryPoint",
    }
    assert undefined - defined <= set(UNDEFINED_ALLOWED)


def test_workspace_and_constants_go_where_the_build_says(tmp_path: Path) -> None:
    path = write(network(), tmp_path)[0]
    result = compile_object(
        path, "arm", '-DTVMGEN_DEMO_WORKSPACE_ATTR=__attribute__((section(".noinit")))',
        '-DTVMGEN_DEMO_CONSTANTS_ATTR=__attribute__((section(".qspi")))',
    )
    with result.open("rb") as stream:
        sections = {s.name: s for s in ELFFile(stream).iter_sections()}
        assert sections[".noinit"]["sh_size"] == 32
        assert sections[".noinit"]["sh_addralign"] == 16
        assert sections[".qspi"]["sh_addralign"] == 32
        assert ".bss" not in sections or not sections[".bss"]["sh_size"]


def test_two_models_live_in_one_program_with_one_registry(tmp_path: Path) -> None:
    paths, entries = [], []
    for module in ("one", "two"):
        artifact = network(module, system_lib=False)
        paths += write(artifact, tmp_path)
        entries += artifact.registry
    paths.append(tmp_path / "registry.c")
    paths[-1].write_text(emit_registry(entries, "/* both */\n"))
    compile_object(paths[-1], "clang")
    library = shared_library(paths)
    assert call_run(library, "one").tobytes() == call_run(library, "two").tobytes()
    library.TVMSystemLibEntryPoint.restype = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))
    names = library.TVMSystemLibEntryPoint().contents[0]
    blob = abi.registry_names(entries, little_endian=True)
    assert ctypes.string_at(names, len(blob)) == blob
