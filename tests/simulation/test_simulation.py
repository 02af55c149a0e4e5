"""Exported code runs on this computer: objects unmodified, C sources of any board compiled."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from crtexport.artifact.model import Artifact
from crtexport.artifact.undefined import UNDEFINED_ALLOWED
from crtexport.backends.c.header import emit_header
from crtexport.backends.c.source import emit_c
from crtexport.mlf.contents import ModelContents, PackageContents, PackageInfo
from crtexport.mlf.reader import Package, open_package
from crtexport.mlf.writer import write_package
from crtexport.simulation.library import build_shared, load_objects
from crtexport.simulation.package import load_package, simulate_package
from crtexport.simulation.simulation import Simulation
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from crtexport.support.resources import templates_dir
from crtexport.support.target import Target
from tests.backends.llvm.llvm_support import (
    HOST,
    TARGETS,
    Array,
    model,
    model_input,
    model_outputs,
    objects,
    objects_of,
)
from tests.helpers import require
from tests.packed_functions import SystemLib, run_packed, simulation_of

RUNTIME = templates_dir() / "runtime" / "include"


def _package(
    path: Path, artifact: Artifact, *, emit: str = "llvm", target: Target = HOST
) -> Package:
    made = {} if emit == "c" else objects_of(artifact, target)
    info: PackageInfo = {"emit": "c" if emit == "c" else "llvm", "undefined": UNDEFINED_ALLOWED}
    write_package(path, PackageContents(
        models=(ModelContents(artifact, emit_header(artifact), "graph"),), target=target,
        board={"name": "host"}, info=info, objects=made,
        sources=emit_c(artifact) if emit == "c" else {},
        runtime_headers={
            str(p.relative_to(RUNTIME)): p.read_bytes() for p in RUNTIME.rglob("*.h")
        },
    ))
    return open_package(path)


def _check(outputs: list[Array]) -> None:
    for got, wanted in zip(outputs, model_outputs(model_input()), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulation_of(model(), load_objects(objects("host").values()))


@pytest.mark.parametrize("caller", [False, True])
@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_packages_of_both_kinds_run(emit: str, caller: bool, tmp_path: Path) -> None:
    package = _package(tmp_path / "m.tar", model(workspace_caller=caller), emit=emit)
    inputs = {"in_x_0": model_input()}
    first, second = simulate_package(package, [inputs, inputs])
    assert list(first) == list(second) == ["Identity", "half"]
    _check(list(first.values()))
    _check(list(second.values()))
    _check(run_packed(load_package(package), [model_input()]))


def test_sources_of_another_board_run_here(tmp_path: Path) -> None:
    package = _package(tmp_path / "m.tar", model(), emit="c", target=TARGETS["m4"])
    _check(list(simulate_package(package, [{"in_x_0": model_input()}])[0].values()))


def test_both_backends_export_the_same_tables(tmp_path: Path) -> None:
    libraries = [
        SystemLib(load_package(_package(tmp_path / f"{emit}.tar", model(), emit=emit)).library)
        for emit in ("c", "llvm")
    ]
    assert libraries[0].names == libraries[1].names
    assert libraries[0].count == libraries[1].count
    assert libraries[0].metadata("m") == libraries[1].metadata("m")


def test_objects_of_another_board_are_refused(tmp_path: Path) -> None:
    package = _package(tmp_path / "m.tar", model(), target=TARGETS["m3"])
    with pytest.raises(CrtExportError, match=r"m\.tar: .*another processor \(EM_ARM\)") as caught:
        simulate_package(package, [])
    assert "--emit c" in str(caught.value)


def test_objects_can_be_loaded_from_files_and_twice(tmp_path: Path) -> None:
    paths = []
    for name, content in objects("host").items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(content)
    first, second = load_objects(paths), load_objects(paths)
    assert first.address("tvmgen_m_run") != second.address("tvmgen_m_run")
    assert first.address("nothing") is None
    _check(simulation_of(model(), second).run([model_input()]))


def test_objects_that_miss_symbols_are_refused() -> None:
    with pytest.raises(CrtExportError, match=r"symbols that nothing has: .*_run_packed"):
        load_objects([objects("host")["m_lib2.o"]])


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.zeros((64,), np.int8), r"in \"x\"\\n:0: the input has shape \(1, 64\), the array"),
        (np.zeros((1, 64), np.uint8), r"in \"x\"\\n:0: the input is int8, the array uint8"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    simulation: Simulation, array: Array, problem: str
) -> None:
    with pytest.raises(CrtExportError, match=problem):
        simulation.run([array])


def test_the_number_of_inputs_must_be_right(simulation: Simulation, tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="has 1 inputs, 0 arrays were given"):
        run_packed(simulation, [])
    package = _package(tmp_path / "m.tar", model())
    with pytest.raises(CrtExportError, match="in_x_0: there is no array"):
        simulate_package(package, [{}])


def test_inputs_of_other_strides_are_copied(simulation: Simulation) -> None:
    _check(simulation.run([np.asfortranarray(np.repeat(model_input(), 2, axis=1))[:, ::2]]))


def _shared(folder: Path, text: str) -> Simulation:
    source = folder / "model.c"
    source.write_text(text)
    artifact = model()
    return simulation_of(artifact, build_shared([source], cflags=["-Wno-pointer-arith"]))


def test_codes_other_than_zero_are_failures(tmp_path: Path) -> None:
    simulation = _shared(tmp_path, "int tvmgen_m_run(void **i, void **o) { return -3; }\n")
    with pytest.raises(RunFailedError, match="tvmgen_m_run: the model returned the error -3"):
        simulation.run([model_input()])


@pytest.mark.parametrize(("position", "where"), [(-1, "Identity"), (10, "Identity")])
def test_writing_outside_of_an_output_is_noticed(
    tmp_path: Path, position: int, where: str
) -> None:
    simulation = _shared(
        tmp_path,
        f"int tvmgen_m_run(void **i, void **o) {{ ((char *)o[0])[{position}] = 1; return 0; }}\n",
    )
    with pytest.raises(RunFailedError, match=f"{where}: the model wrote outside"):
        simulation.run([model_input()])


def test_code_without_the_function_is_refused(tmp_path: Path) -> None:
    simulation = _shared(tmp_path, "int something;\n")
    with pytest.raises(CrtExportError, match="tvmgen_m_run: the code has no such function"):
        simulation.run([model_input()])


def test_sources_that_do_not_compile_are_failures(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int f(void) { return nonsense; }\n")
    with pytest.raises(RunFailedError, match="refused the exported sources"):
        build_shared([source])


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(ToolMissingError, match="no C compiler \\(no-such-cc\\)"):
        build_shared([])
    monkeypatch.delenv("CC")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolMissingError, match="cc, gcc, clang") as caught:
        build_shared([])
    assert "apt-get install gcc" in str(caught.value)


def test_the_compiler_may_be_named_with_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tmp_path / "answer.c"
    source.write_text("int answer(void) { return ANSWER; }\n")
    monkeypatch.setenv("CC", f"{require('gcc')} -DANSWER=42")
    assert build_shared([source]).handle.answer() == 42


def test_a_missing_llvmlite_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocker:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.startswith("llvmlite"):
                raise ModuleNotFoundError(f"No module named {name}")

    for name in [n for n in sys.modules if n.split(".")[0] == "llvmlite"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Blocker(), *sys.meta_path])
    with pytest.raises(ToolMissingError, match="llvmlite can't be imported") as caught:
        load_objects(objects("host").values())
    assert "--emit c" in str(caught.value)


def test_models_of_several_inputs_and_outputs_keep_their_order(tmp_path: Path) -> None:
    source = tmp_path / "swap.c"
    source.write_text(
        "#include <string.h>\n"
        "int tvmgen_m_run(void **in, void **out)\n"
        "{ memcpy(out[0], in[0], 20); memset(out[1], 7, 20); return 0; }\n"
    )
    tensors = (model().outputs[1], model().outputs[1])
    simulation = Simulation("m", tensors, tensors, build_shared([source]))
    x = np.arange(10, dtype=np.float16)
    first, second = simulation.run([x, x])
    np.testing.assert_array_equal(first, x)
    assert set(second.tobytes()) == {7}
