"""Several models in one package: one registry, what is equal once, each with its own interface."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.artifact import abi
from crtexport.artifact.model import RegistryEntry
from crtexport.cli.main import main
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.ops import Softmax
from crtexport.ir.types import DType, TensorType
from crtexport.mlf.reader import Package, open_package
from crtexport.support.errors import CrtExportError
from tests.helpers import require
from tests.mlf.consumers import complaints
from tests.models.test_streaming import accumulator
from tests.several.networks import OTHERS, WEIGHTS, expected, inputs, network, program

BACKENDS = ("c", "llvm")
STRICT = (
    "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef",
    "-Wmissing-prototypes", "-Werror", "-O1",
)


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Two networks with the same weights, and one with others and another scale."""
    return [
        network(tmp_path, "first", WEIGHTS), network(tmp_path, "second", WEIGHTS),
        network(tmp_path, "third", OTHERS, 0.03),
    ]


def exported(models: list[Path], folder: Path, **options: object) -> Package:
    path = folder / "several.tar"
    crtexport.export(models, output=path, **options)  # type: ignore[arg-type]
    return open_package(path)


def linked(package: Package, folder: Path, *flags: str) -> Path:
    """The program of all models, linked by this computer's compiler."""
    package.extract(folder / "model")
    (folder / "main.c").write_text(program(package))
    code = [folder / "model/codegen/host/src" / name for name in package.sources]
    code += [folder / "model/codegen/host/lib" / name for name in package.objects]
    subprocess.run(
        [
            require("gcc"), *STRICT, "-ffp-contract=off", *flags,
            f"-I{folder / 'model/codegen/host/include'}", f"-I{folder / 'model/runtime/include'}",
            str(folder / "main.c"), *map(str, code), "-o", str(folder / "program"),
        ],
        check=True,
    )
    return folder / "program"


@pytest.mark.parametrize("emit", BACKENDS)
def test_all_are_called_in_turns_through_their_headers_and_by_name(
    emit: str, three: list[Path], tmp_path: Path
) -> None:
    package = exported(three, tmp_path, emit=emit)
    # TVM's command line for micro targets takes packages of one model only.
    assert complaints(package.path) == ["there isn't exactly one module"]
    given = inputs(package)
    outputs = crtexport.simulate_all(package.path, given)
    for number, path in enumerate(three):  # alone, each gives the same
        alone = crtexport.export(path, emit=emit, output=tmp_path / f"{number}.tar").path
        name = path.stem
        assert all(
            (row["y"] == together["y"]).all()
            for row, together in zip(
                crtexport.simulate(alone, {"x": given[f"{name}/x"]}), outputs[name], strict=True
            )
        )
    done = subprocess.run(
        [str(linked(package, tmp_path))], check=True, capture_output=True,
        input=b"".join(array[0].tobytes() for array in given.values()),
    )
    assert done.stdout == expected(outputs)


@pytest.mark.parametrize("emit", BACKENDS)
def test_equal_constants_and_kernels_are_there_once(
    emit: str, three: list[Path], tmp_path: Path
) -> None:
    exporting = crtexport.export(three, emit=emit, output=tmp_path / "p.tar", optimize="speed")
    first, second, third = (model.artifact for model in exporting.models)
    assert first.common.borrowed == frozenset()
    assert second.own_functions == ()
    assert {c.symbol for c in second.constants} == {c.symbol for c in first.constants}
    assert second.common.borrowed == first.common.lent | {
        f.symbol for f in first.functions if f.symbol in second.common.borrowed
    }
    assert third.own_functions  # its scale is another
    package = open_package(tmp_path / "p.tar")
    if emit == "c":
        (weights,) = (c for c in first.constants if c.data.nbytes == WEIGHTS.nbytes)
        defined = [
            name for name, text in package.sources.items()
            if f" {weights.symbol}[{weights.count}] = {{" in text
        ]
        assert defined == ["first_lib0.c"]
    else:
        assert package.section is not None
        sizes = [facts.sections for facts in package.section.objects.values()]
        assert sum(s[".rodata"] for s in sizes) < 2 * WEIGHTS.nbytes + 2 * 1024 + 2048


@pytest.mark.parametrize("emit", BACKENDS)
def test_one_registry_knows_the_functions_of_all(
    emit: str, three: list[Path], tmp_path: Path
) -> None:
    package = exported(three, tmp_path, emit=emit)
    files = package.sources if emit == "c" else package.objects
    registries = [name for name in files if "lib2" in name]
    assert registries == [f"first_lib2.{'c' if emit == 'c' else 'o'}"]
    assert package.section is not None
    names = [
        entry.name for module in package.section.modules.values() for entry in module.registry
    ]
    assert names == [
        f"tvmgen_{name}_{function}" for name in ("first", "second", "third")
        for function in ("run", "get_c_metadata")
    ]


@pytest.mark.parametrize("split", ["operator", "auto"])
def test_kernels_in_objects_of_their_own_are_shared_too(
    split: str, three: list[Path], tmp_path: Path
) -> None:
    package = exported(three, tmp_path, emit="llvm", split=split)
    given = inputs(package, 1)
    plain = crtexport.simulate_all(exported(three, tmp_path, emit="c").path, given)
    crtexport.export(three, emit="llvm", split=split, output=tmp_path / "s.tar")  # type: ignore[arg-type]
    again = crtexport.simulate_all(tmp_path / "s.tar", given)
    assert all((plain[name][0]["y"] == again[name][0]["y"]).all() for name in plain)


def test_constants_too_many_for_text_are_one_object_with_a_table_for_each(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crtexport.backends.c.source.MAX_CONSTANTS", 100)
    package = exported(three, tmp_path, emit="c")
    assert list(package.objects) == ["first_constants.o"]
    given = inputs(package)
    outputs = crtexport.simulate_all(package.path, given)
    done = subprocess.run(
        [str(linked(package, tmp_path))], check=True, capture_output=True,
        input=b"".join(array[0].tobytes() for array in given.values()),
    )
    assert done.stdout == expected(outputs)


def test_metadata_describes_each_model(three: list[Path], tmp_path: Path) -> None:
    package = exported(three, tmp_path, emit="llvm")
    assert list(package.modules) == ["first", "second", "third"]
    for model in package.each:
        assert model.header is not None
        assert f"tvmgen_{model.module}_run" in model.header
        assert f"parameters/{model.module}.params" in package.names
        assert model.plan_data is not None
        assert model.module_section is not None
        assert model.module_section.source == f"{model.module}.json"
    with pytest.raises(CrtExportError, match="works on one model; the package has first, second"):
        _ = package.inputs


def test_arrays_are_called_by_model_and_input(three: list[Path], tmp_path: Path) -> None:
    package = exported(three, tmp_path, emit="c")
    given = inputs(package)
    with pytest.raises(CrtExportError, match="no model has an input 'x'"):
        crtexport.simulate_all(package.path, {**given, "x": given["first/x"]})
    with pytest.raises(CrtExportError, match="no model has an input 'fourth/x'"):
        crtexport.simulate_all(package.path, {**given, "fourth/x": given["first/x"]})
    with pytest.raises(CrtExportError, match=r"second.*there is no array for this input"):
        crtexport.simulate_all(package.path, {"first/x": given["first/x"]})
    with pytest.raises(CrtExportError, match="different numbers of samples"):
        crtexport.simulate_all(package.path, {**given, "first/x": given["first/x"][:1]})
    (row, _) = crtexport.simulate(package.path, {"x": given["third/x"]}, model="third")
    assert (row["y"] == crtexport.simulate_all(package.path, given)["third"][0]["y"]).all()
    with pytest.raises(CrtExportError, match="no model 'fourth'; there is first, second, third"):
        crtexport.simulate(package.path, model="fourth")


def test_the_command_line_takes_several(
    three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    models = [str(path) for path in three]
    names = ["--module-name", "a", "--module-name", "b", "--module-name", "c"]
    assert main([*models, *names, "--emit", "c", "--unpack", "out", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["package"] == "a-b-c-host.tar"
    assert data["modules"] == ["a", "b", "c"]
    assert (tmp_path / "out/include/tvmgen_b.h").is_file()
    np.savez("x.npz", **inputs(open_package(Path("a-b-c-host.tar"))))
    assert main(["simulate", "a-b-c-host.tar", "--input", "x.npz", "--output", "y.npz"]) == 0
    assert "model b" in capsys.readouterr().out
    with np.load("y.npz") as saved:
        assert sorted(saved.files) == ["a/y", "b/y", "c/y"]
    assert main(["simulate", "a-b-c-host.tar", "--model", "c", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["outputs"][0]) == ["y"]
    assert main(["inspect", "a-b-c-host.tar"]) == 0
    assert "Inputs and outputs of b" in capsys.readouterr().out
    assert main([*models, "--module-name", "a"]) == 2
    assert "3 models, but 1 module names" in capsys.readouterr().err


def test_two_models_of_one_name_are_refused(three: list[Path], tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"first.*models 1 and 3 of the package have"):
        crtexport.export([three[0], three[1], three[0]], output=tmp_path / "p.tar")
    assert not (tmp_path / "p.tar").exists()


def test_the_same_models_give_the_same_bytes(three: list[Path], tmp_path: Path) -> None:
    packages = []
    for jobs in (1, 2):
        path = tmp_path / f"{jobs}.tar"
        crtexport.export(three, board="mps2_an386", emit="llvm", jobs=jobs, output=path)
        packages.append(path.read_bytes())
    assert packages[0] == packages[1]


def test_a_library_of_several_shows_no_more_than_their_interfaces(
    three: list[Path], tmp_path: Path
) -> None:
    for emit in BACKENDS:
        folder = tmp_path / emit
        folder.mkdir()
        package = exported(three, folder, emit=emit)
        package.extract(folder / "model")
        code = [folder / "model/codegen/host/src" / name for name in package.sources]
        code += [folder / "model/codegen/host/lib" / name for name in package.objects]
        subprocess.run(
            [
                require("gcc"), "-shared", "-fPIC", f"-I{folder / 'model/codegen/host/include'}",
                f"-I{folder / 'model/runtime/include'}", *map(str, code),
                "-o", str(folder / "all.so"),
            ],
            check=True,
        )
        symbols = subprocess.run(
            [require("nm"), "-D", "--defined-only", str(folder / "all.so")],
            check=True, capture_output=True, text=True,
        ).stdout.split()[2::3]
        assert all(
            name.endswith(("_run", "_run_packed", "_get_c_metadata", "TVMSystemLibEntryPoint"))
            for name in symbols if name.startswith(("tvmgen", "TVM"))
        )


@pytest.mark.parametrize("emit", BACKENDS)
def test_one_workspace_for_all_is_as_large_as_the_largest(
    emit: str, three: list[Path], tmp_path: Path
) -> None:
    made = crtexport.export(
        three, emit=emit, workspace="shared", output=tmp_path / "several.tar"  # type: ignore[arg-type]
    )
    assert made.sizes["workspace"] == max(m.artifact.workspace_total for m in made.models) > 0
    package = open_package(made.path)
    given = inputs(package)
    wanted = crtexport.simulate_all(exported(three, tmp_path, emit="c").path, given)
    crtexport.export(three, emit=emit, workspace="shared", output=made.path)  # type: ignore[arg-type]
    package = open_package(made.path)
    owners = {m.workspace.owner for m in package.section.modules.values()}  # type: ignore[union-attr]
    assert owners == {"package"}
    done = subprocess.run(
        [str(linked(package, tmp_path, "-Wl,-Map," + str(tmp_path / "map")))], check=True,
        capture_output=True, input=b"".join(array[0].tobytes() for array in given.values()),
    )
    assert done.stdout == expected(wanted)
    if emit == "llvm":
        assert package.section is not None
        taken = sum(facts.sections[".bss"] for facts in package.section.objects.values())
        assert taken == made.sizes["workspace"]


@pytest.mark.parametrize("emit", BACKENDS)
def test_state_is_never_shared(emit: str, tmp_path: Path) -> None:
    made = crtexport.export(
        [accumulator(), accumulator()], module_name=["one", "two"], workspace="shared",
        emit=emit, output=tmp_path / "p.tar",  # type: ignore[arg-type]
    )
    package = open_package(made.path)
    one = np.full((3, 1, 3), 1, np.float32)
    outputs = crtexport.simulate_all(package.path, {"one/x": one, "two/x": 10 * one})
    start = np.array([[1.5, -2.0, 0.0]], np.float32)
    for step in range(3):
        assert (outputs["one"][step]["y"] == start + step + 1).all()
        assert (outputs["two"][step]["y"] == start + 10 * (step + 1)).all()


def _wide(outputs: int) -> Graph:
    type_ = TensorType(DType.FLOAT32, (4,))
    tensors = [Tensor(f"t{i}", type_) for i in range(outputs + 1)]
    nodes = tuple(Node(Softmax(float(i)), (0,), (i,)) for i in range(1, outputs + 1))
    return Graph("wide", tuple(tensors), nodes, (0,), tuple(range(1, outputs + 1)))


def test_more_arguments_than_runtimes_pass_are_refused(tmp_path: Path) -> None:
    assert crtexport.export(_wide(9), emit="c", output=tmp_path / "nine.tar")
    match = r"wide: tvmgen_wide_run has 11 arguments \(1 inputs, 10 outputs\); .* at most 10"
    with pytest.raises(CrtExportError, match=match) as refused:
        crtexport.export(_wide(10), emit="c", output=tmp_path / "ten.tar")
    assert "--no-system-lib" in (refused.value.hint or "")
    assert not (tmp_path / "ten.tar").exists()
    with pytest.raises(CrtExportError, match="b: tvmgen_b_run has 11 arguments"):
        crtexport.export(
            [_wide(3), _wide(10)], module_name=["a", "b"], emit="c", output=tmp_path / "ten.tar"
        )
    assert crtexport.export(_wide(10), emit="c", system_lib=False, output=tmp_path / "ten.tar")


def test_more_functions_than_handles_tell_apart_are_refused() -> None:
    entries = [RegistryEntry(f"f{i}", "f") for i in range(abi.MAX_FUNCTIONS)]
    assert abi.registry_names(entries, little_endian=True)[:2] == b"\xff\x7f"
    with pytest.raises(CrtExportError, match="would have 32,768 functions, at most 32,767"):
        abi.registry_names([*entries, RegistryEntry("one_more", "f")], little_endian=True)


# ---- workspaces in several memories


@pytest.mark.parametrize("workspace", ["static", "shared"])
def test_models_share_a_fast_memory(workspace: str, three: list[Path], tmp_path: Path) -> None:
    package = exported(
        three, tmp_path, board="mps2_an386", emit="c", workspace=workspace, io="workspace",
        pools=(("ram", 100), ("flash", 4096)),
    )
    taken = {"ram": 0, "flash": 0}
    for section in package.metadata.crtexport.modules.values():
        parts = {"ram": section.workspace.bytes}
        parts |= {pool.memory: pool.bytes for pool in section.workspace.spilled}
        for memory, size in parts.items():
            together = taken[memory] + size if workspace == "static" else max(taken[memory], size)
            taken[memory] = together
    assert 0 < taken["ram"] <= 100
    assert bool(taken["flash"]) is (workspace == "static")


def test_workspaces_that_find_no_room_together_are_refused(
    three: list[Path], tmp_path: Path
) -> None:
    options = {"board": "mps2_an386", "emit": "c", "io": "workspace"}
    exported(three[:1], tmp_path, pools=(("ram", 100),), **options)
    (tmp_path / "several.tar").unlink()
    with pytest.raises(CrtExportError, match=(
        r"the workspaces of 2 models need \d+ bytes of ram, they may take 100 together"
    )):
        exported(three, tmp_path, pools=(("ram", 100),), **options)
    assert not (tmp_path / "several.tar").exists()
