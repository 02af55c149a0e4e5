"""Kernels in objects of their own: the same results, the same bytes each time, nothing unused."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from msgspec.structs import replace

from crtexport.artifact.model import (
    Artifact,
    ConstantArg,
    Function,
    FunctionCall,
    OutputArg,
    ScalarArg,
)
from crtexport.backends.llvm.compile import Compiler, compile_modules
from crtexport.backends.llvm.module import llvm_modules
from crtexport.backends.llvm.split import partition
from crtexport.backends.modules import SPLITS, Module, Split
from crtexport.kir.language import Comment, Const, For, If, Kernel, Let, Scalar, Var
from crtexport.simulation.library import load_objects
from crtexport.support.errors import CrtExportError
from tests.backends.llvm.llvm_support import (
    GCC,
    HOST,
    TARGETS,
    constants_of,
    elf,
    model,
    model_input,
    model_outputs,
)
from tests.helpers import require
from tests.packed_functions import simulation_of

MODULES = {
    "none": [
        Module("m_lib0", "model", ("m_dense", "m_dense_2", "m_floating")),
        Module("m_lib1", "metadata"), Module("m_lib2", "registry"),
    ],
    "operator": [
        Module("m_lib0", "model"), Module("m_lib1", "metadata"), Module("m_lib2", "registry"),
        Module("m_lib3", "kernels", ("m_dense",)), Module("m_lib4", "kernels", ("m_dense_2",)),
        Module("m_lib5", "kernels", ("m_floating",)),
    ],
}


@cache
def split_objects(target: str, split: Split) -> dict[Module, bytes]:
    return Compiler(TARGETS[target], "balanced", split=split).compile(model())


def linkable(artifact: Artifact, target: str, split: Split) -> dict[Module, bytes]:
    """Code and constants."""
    chosen = TARGETS[target]
    code = Compiler(chosen, "size", split=split).compile(artifact)
    return code | constants_of(artifact, chosen)


def named(prefix: str) -> Artifact:
    """The small model under another name, with kernels and constants called after it."""
    artifact = model(module=prefix)

    def renamed(symbol: str) -> str:
        return f"{prefix}_{symbol.removeprefix('m_')}"

    return replace(
        artifact,
        functions=tuple(replace(f, symbol=renamed(f.symbol)) for f in artifact.functions),
        constants=tuple(replace(c, symbol=renamed(c.symbol)) for c in artifact.constants),
        calls=tuple(
            replace(c, symbol=renamed(c.symbol), args=tuple(
                replace(arg, symbol=renamed(arg.symbol)) if isinstance(arg, ConstantArg) else arg
                for arg in c.args
            ))
            for c in artifact.calls
        ),
        registry=(), system_lib=False,
    )


@pytest.mark.parametrize("split", MODULES)
def test_modules_say_what_they_are_for(split: Split) -> None:
    assert list(split_objects("m4", split)) == MODULES[split]


@pytest.mark.parametrize(
    ("statements", "groups"),
    [
        ([], [0]), ([10], [1]), ([300], [1]), ([400], [1]), ([140, 140], [2]),
        ([200, 200], [0, 1, 1]), ([400, 1, 1], [0, 1, 2]),
        ([140, 140, 140, 140, 1], [0, 2, 3]),
    ],
)
def test_auto_fills_objects_in_order(statements: list[int], groups: list[int]) -> None:
    statement = Let(Var("x", Scalar.INDEX), Const(0, Scalar.INDEX))
    functions = tuple(
        Function(f"f{n}", Kernel("k", (), (Comment("not one"), statement) * count))
        for n, count in enumerate(statements)
    )
    parts = partition(model(functions=functions), "auto", lambda _: True, HOST)
    assert [len(part) for part in parts] == groups
    assert tuple(itertools.chain.from_iterable(parts)) == functions


def test_auto_leaves_kernels_beside_their_calls_that_need_them() -> None:
    half = (Let(Var("x", Scalar.INDEX), Const(0, Scalar.INDEX)),) * 80
    branch = If(Const(1, Scalar.I1), half, half)
    loop = For(Var("i", Scalar.INDEX), Const(2, Scalar.INDEX), (branch,))
    functions = tuple(Function(f"f{n}", Kernel("k", (), (loop,))) for n in range(3))
    staying, *leaving = partition(
        model(functions=functions), "auto", lambda name: name != "f1", HOST
    )
    assert staying == functions[1:2]
    assert leaving == [functions[:1], functions[2:]]


@pytest.mark.parametrize(("target", "objects"), [("m4", 1), ("host", 3)])
def test_loops_whose_instructions_are_given_fill_no_objects(target: str, objects: int) -> None:
    many = (Let(Var("x", Scalar.INDEX), Const(0, Scalar.INDEX)),) * 200
    loop = For(Var("i", Scalar.INDEX), Const(2, Scalar.INDEX), many, assembled=True)
    functions = tuple(Function(f"f{n}", Kernel("k", (), (loop,))) for n in range(2))
    parts = partition(model(functions=functions), "auto", lambda _: True, TARGETS[target])
    assert len(parts) == objects


def test_small_models_stay_in_one_object_with_auto() -> None:
    assert split_objects("m4", "auto") == split_objects("m4", "none")


def test_an_unknown_way_to_split_is_refused() -> None:
    with pytest.raises(CrtExportError, match="way to split modules called halves"):
        llvm_modules(model(), HOST, "size", "halves")  # type: ignore[arg-type]


@pytest.mark.parametrize("split", SPLITS)
def test_the_result_is_the_same_however_a_model_is_split(split: Split) -> None:
    objects = split_objects("host", split) | constants_of(model(), HOST)
    library = load_objects(objects.values())
    x = model_input()
    results = simulation_of(model(), library).run([x])
    for found, expected in zip(results, model_outputs(x), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["m4", "host"])
def test_bytes_depend_on_neither_workers_nor_order(target: str) -> None:
    texts = {
        f"{module.name}.ll": text
        for module, text in llvm_modules(model(), TARGETS[target], "balanced", "operator").items()
    }
    expected = {f"{m.name}.o": data for m, data in split_objects(target, "operator").items()}
    names = list(texts)
    for jobs, order in ((1, names), (8, names[::-1]), (2, names[::2] + names[1::2])):
        shuffled = {name: texts[name] for name in order}
        assert compile_modules(shuffled, TARGETS[target], "balanced", jobs=jobs) == expected


def defined(content: bytes) -> list[tuple[str, str, str]]:
    """Symbol, kind and section of every function and array."""
    file = elf(content)
    return [
        (s.name, s["st_info"]["type"], file.get_section(s["st_shndx"]).name)
        for s in file.get_section_by_name(".symtab").iter_symbols()
        if s["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT") and s["st_shndx"] != "SHN_UNDEF"
    ]


@pytest.mark.parametrize("target", ["m0", "m4", "rv32", "i386", "host"])
@pytest.mark.parametrize("split", ["none", "operator"])
def test_every_function_and_constant_has_a_section_of_its_own(target: str, split: Split) -> None:
    found = [
        (module.name, section)
        for module, content in linkable(model(), target, split).items()
        for _, _, section in defined(content)
    ]
    assert len(found) == len(set(found))
    assert len(found) > 15


def test_split_kernels_are_hidden_and_defined_once() -> None:
    made = split_objects("host", "operator")
    kernels = {symbol for module in made for symbol in module.kernels}
    assert kernels == {"m_dense", "m_dense_2", "m_floating"}
    seen = []
    for content in made.values():
        for symbol in elf(content).get_section_by_name(".symtab").iter_symbols():
            if symbol.name in kernels:
                assert symbol["st_other"]["visibility"] == "STV_HIDDEN"
                if symbol["st_shndx"] != "SHN_UNDEF":
                    seen.append(symbol.name)
    assert sorted(seen) == sorted(kernels)


APP = """
extern int tvmgen_a_run(void **, void **);
void *memcpy(void *d, const void *s, __SIZE_TYPE__ n)
{ char *p = d; const char *q = s; while (n--) *p++ = *q++; return d; }
void *memset(void *d, int c, __SIZE_TYPE__ n)
{ char *p = d; while (n--) *p++ = (char)c; return d; }
static char x[64], y[10], z[20];
void _start(void) { void *in[] = {x}, *out[] = {y, z}; while (1) tvmgen_a_run(in, out); }
"""


@pytest.mark.parametrize("split", ["none", "operator"])
@pytest.mark.parametrize("target", ["m4", "rv32", "i386"])
def test_firmware_carries_only_the_model_that_it_uses(
    target: str, split: Split, tmp_path: Path
) -> None:
    files: dict[str, list[Path]] = {"a": [], "b": []}
    for name, paths in files.items():
        for module, content in linkable(named(name), target, split).items():
            paths.append(tmp_path / f"{module.name}.o")
            paths[-1].write_bytes(content)
    (tmp_path / "app.c").write_text(APP)
    alone = link(target, files["a"], tmp_path, "alone.elf")
    both = link(target, [*files["b"], *files["a"]], tmp_path, "both.elf")
    names = {s.name for s in both.get_section_by_name(".symtab").iter_symbols()}
    assert "tvmgen_a_run" in names
    assert "a_dense" in names
    assert not [name for name in names if name.startswith(("tvmgen_b", "b_"))]
    for section in (".text", ".rodata", ".bss"):
        assert size(both, section) == size(alone, section)


def size(file: ELFFile, name: str) -> int:
    return sum(int(s["sh_size"]) for s in file.iter_sections() if s.name.startswith(name))


def link(target: str, objects: list[Path], folder: Path, name: str) -> ELFFile:
    compiler, *flags = GCC[target]
    subprocess.run(
        [
            require(compiler), *flags, "-fno-builtin", "-nostdlib", "-static", "-Wl,--gc-sections",
            "-Wl,--fatal-warnings", folder / "app.c", *objects,
            *([] if target == "i386" else ["-lgcc"]), "-o", folder / name,
        ],
        check=True,
    )
    return elf((folder / name).read_bytes())


def sections(made: Mapping[Module, bytes]) -> dict[str, bytes]:
    """The code of each function."""
    return {
        section.name: section.data()
        for content in made.values() for section in elf(content).iter_sections()
        if section.name.startswith(".text.")
    }


@pytest.mark.parametrize("target", ["m0", "m4", "rv32", "i386", "host"])
def test_functions_are_the_same_code_in_objects_of_their_own(target: str) -> None:
    assert sections(split_objects(target, "operator")) == sections(split_objects(target, "none"))


def calling_twice(first: float, second: float) -> Artifact:
    """The floats of both outputs of a layer, each with a scale of its own."""
    artifact = model()
    outputs = (*artifact.outputs, replace(artifact.outputs[1], name="more", field="more"))
    calls = (
        *artifact.calls[:2],
        *(
            FunctionCall(
                "m_floating", (OutputArg(0), OutputArg(number), ScalarArg(scale, Scalar.F32))
            )
            for number, scale in ((1, first), (2, second))
        ),
    )
    return replace(artifact, outputs=outputs, calls=calls)


@pytest.mark.parametrize("split", ["none", "operator"])
def test_arguments_that_differ_between_calls_stay_arguments(split: Split) -> None:
    artifact = calling_twice(0.5, -0.25)
    made = Compiler(HOST, "balanced", split=split).compile(artifact)
    library = load_objects((made | constants_of(artifact, HOST)).values())
    found = simulation_of(artifact, library).run([model_input()])
    values = found[0].astype(np.float32).reshape(-1)
    for result, scale in zip(found[1:], (0.5, -0.25), strict=True):
        np.testing.assert_array_equal(
            result, (values * np.float32(scale) + np.float32(0.5)).astype(np.float16)
        )


def test_equal_arguments_of_all_calls_are_in_the_kernel() -> None:
    for first, second, given in ((0.5, 0.5, 2), (0.5, 0.25, 3), (0.0, -0.0, 3)):
        texts = llvm_modules(calling_twice(first, second), HOST, "balanced").values()
        calls = re.findall(r"call fastcc void @m_floating\((.*)\)", "".join(texts))
        assert [len(call.split(",")) for call in calls] == [given, given]
