"""metadata.json says what other readers look for, and what only we know under our own key."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crtexport.artifact.model import Interface
from crtexport.ir import ops
from crtexport.ir.graph import Graph, Node, Tensor
from crtexport.ir.types import ConstantRef, DType, TensorType
from crtexport.mlf.contents import plan_data
from crtexport.mlf.metadata import Json, json_bytes, parse
from crtexport.mlf.reader import open_package
from crtexport.mlf.writer import write_package
from crtexport.plan.model import Placement, Plan, ScratchRange, Space, Step
from crtexport.support.errors import CrtExportError
from tests.mlf.consumers import complaints
from tests.mlf.support import QUANTIZED, artifact, calling, contents, info, tar_of


def metadata(path: Path) -> dict[str, Any]:
    with tarfile.TarFile(path) as tar:
        stream = tar.extractfile("./metadata.json")
        assert stream is not None
        loaded: dict[str, Any] = json.load(stream)
        return loaded


@pytest.fixture
def package(tmp_path: Path) -> Path:
    write_package(tmp_path / "p.tar", contents())
    return tmp_path / "p.tar"


def test_other_readers_have_no_complaints(package: Path, tmp_path: Path) -> None:
    assert complaints(package) == []
    objects = contents(
        sources={}, objects={"digits_lib0.o": calling("f", "memset")}, info=info(emit="llvm")
    )
    write_package(tmp_path / "o.tar", objects)
    assert complaints(tmp_path / "o.tar") == []


def test_the_checker_of_other_readers_does_complain(package: Path, tmp_path: Path) -> None:
    (tmp_path / "z.tar").write_bytes(gzip.compress(package.read_bytes()))
    assert "TarFile doesn't open it" in complaints(tmp_path / "z.tar")[0]
    bare = tar_of(tmp_path / "bare.tar", {"metadata.json": b"{}"})
    assert "there is no literal ./metadata.json" in complaints(bare)
    wrong = metadata(package)
    wrong["modules"]["digits"]["executors"] = []
    main = wrong["modules"]["digits"]["memory"]["functions"]["main"][0]
    main |= {"io_size_bytes": 1, "workspace_size_bytes": 192}
    files = {
        "./metadata.json": json.dumps(wrong).encode(),
        "./codegen/host/include/tvmgen_digits.h": b"",
        "./parameters/digits.params": b"\0" * 32,
    }
    found = complaints(tar_of(tmp_path / "wrong.tar", files))
    for expected in (
        "executors are []", "the parameters have a wrong header", "there is no generated code",
        "io_size_bytes isn't the sum of the tensors", "the folder codegen/host/src is missing",
        "an arena of 192 bytes stands beside the workspace in digits's code",
        "no source tells CMake the language of the library",
    ):
        assert expected in found
    files["./codegen/host/src/digits_lib0.c"] = b'#include "tvmgen_digits.h"\n'
    found = complaints(tar_of(tmp_path / "source.tar", files))
    assert "digits_lib0.c needs a header that isn't copied" in found


def test_keys_of_version_7(package: Path) -> None:
    content = metadata(package)
    assert list(content) == ["version", "modules", "crtexport"]
    assert content["modules"] == {
        "digits": {
            "model_name": "digits",
            "export_datetime": "1970-01-01 00:00:00Z",
            "memory": {
                "functions": {
                    "main": [
                        {
                            "device": 1,
                            "workspace_size_bytes": 0,
                            "constants_size_bytes": 5,
                            "io_size_bytes": 104,
                            "inputs": {'serving "x":0': {"size": 64, "dtype": "int8"}},
                            "outputs": {"Identity": {"size": 40, "dtype": "float32"}},
                        }
                    ],
                    "operator_functions": [],
                }
            },
            "target": ["c -keys=cpu -mcpu=cortex-m4"],
            "executors": ["aot"],
            "style": "full-model",
            "external_dependencies": [],
        }
    }


def test_our_own_section(package: Path) -> None:
    section = metadata(package)["crtexport"]
    assert section["format"] == 1
    assert section["emit"] == "c"
    assert section["board"] == {"name": "mps2_an386", "file": "crtexport/board.json"}
    assert section["abi"]["triple"] == "armv7em-none-eabi"
    assert section["abi"]["float_abi"] == "hard"
    assert section["undefined"] == {"allowed": ["memcpy", "memset"], "used": None}
    assert section["devices"] == []
    module = section["modules"]["digits"]
    assert module["workspace"] == {"bytes": 192, "align": 16, "owner": "module"}
    assert module["inputs"][0]["quantization"] == {
        "scale": [0.5], "zero_point": [-3], "axis": None
    }
    assert module["outputs"][0]["quantization"] is None
    assert module["outputs"][0]["shape"] == [1, 10]
    assert module["registry"] == [
        {"name": "tvmgen_digits_run", "symbol": "tvmgen_digits_run_packed"}
    ]
    assert (module["numerics"], module["optimize"]) == ("tflite", "balanced")
    assert module["plan"] == "crtexport/plan.json"


def test_every_file_but_the_metadata_has_a_hash(package: Path) -> None:
    with tarfile.TarFile(package) as tar:
        files = {member.name.removeprefix("./") for member in tar if member.isfile()}
    assert set(metadata(package)["crtexport"]["members"]) == files - {"metadata.json"}


def test_a_caller_owns_the_workspace(tmp_path: Path) -> None:
    made = replace(artifact(), workspace_caller=True)
    write_package(tmp_path / "p.tar", contents(model=made))
    module = metadata(tmp_path / "p.tar")["crtexport"]["modules"]["digits"]
    assert module["workspace"]["owner"] == "caller"


def test_tensors_of_one_name_are_told_apart_by_their_fields(tmp_path: Path) -> None:
    twins = (Interface("x", "x", QUANTIZED), Interface("x", "x_1", QUANTIZED))
    write_package(tmp_path / "p.tar", contents(model=replace(artifact(), inputs=twins)))
    main = metadata(tmp_path / "p.tar")["modules"]["digits"]["memory"]["functions"]["main"][0]
    assert list(main["inputs"]) == ["x", "x_1"]


def test_names_of_tensors_are_data(tmp_path: Path) -> None:
    odd = (Interface('a"\n*/é\ud800', "a", QUANTIZED),)
    made = contents(model=replace(artifact(), inputs=odd), graph_text=odd[0].name)
    write_package(tmp_path / "p.tar", made)
    opened = open_package(tmp_path / "p.tar")
    assert opened.inputs[0].name == 'a"\n*/é\\ud800'
    main = opened.modules["digits"].memory.functions.main[0]
    assert list(main.inputs) == [opened.inputs[0].name]
    assert opened.graph_text is not None
    assert opened.graph_text.endswith('a"\n*/é\\ud800')


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("inputs", 0, "field"), "x; }"),
        (("inputs", 0, "shape"), [-1, -4]),
        (("workspace", "align"), 0),
        (("workspace", "spilled"), [{"memory": "a b", "bytes": 4}]),
        (("devices",), [{"field": "npu", "kind": "npu", "id": 0, "program": "", "hooks": [],
                         "functions": []}]),
        (("optimize",), "most"),
    ],
)
def test_what_would_be_no_c_is_refused(
    keys: tuple[str | int, ...], value: object, package: Path
) -> None:
    """Firmware is written with these names and numbers of a package."""
    data = metadata(package)
    inner: Any = data["crtexport"]["modules"]["digits"]
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    where = r"\.".join(map(str, keys))
    with pytest.raises(CrtExportError, match=rf"crtexport\.modules\.digits\.{where}"):
        parse(json.dumps(data).encode(), "p.tar")


def test_the_target_of_objects_tells_triple_and_features(tmp_path: Path) -> None:
    made = contents(
        sources={}, objects={"digits_lib0.o": calling("f", "memset")}, info=info(emit="llvm")
    )
    write_package(tmp_path / "p.tar", made)
    assert metadata(tmp_path / "p.tar")["modules"]["digits"]["target"] == [
        "llvm -keys=cpu -mtriple=armv7em-none-eabi -mcpu=cortex-m4 -mattr=+dsp"
    ]


def test_every_object_is_described_by_what_is_in_it(tmp_path: Path) -> None:
    symbols = {"digits_lib0.o": ("f", "memset"), "digits_lib1.o": ("g", "f"), "a.o": ("h", "g")}
    made = contents(
        sources={}, objects={name: calling(*both) for name, both in symbols.items()},
        info=info(emit="llvm"),
    )
    write_package(tmp_path / "p.tar", made)
    found = metadata(tmp_path / "p.tar")["crtexport"]["objects"]
    assert {
        name: (*facts["defined"], *facts["undefined"]) for name, facts in found.items()
    } == symbols


def test_the_plan_as_data() -> None:
    value = TensorType(DType.INT8, (4,))
    graph = Graph(
        name="g",
        tensors=(
            Tensor("in", value), Tensor("w", value, ConstantRef(4, data=b"1234")),
            Tensor("mid", value), Tensor("out", value),
        ),
        nodes=(Node(ops.Relu(), (0,), (2,), origin="first"), Node(ops.Relu(), (2,), (3,))),
        inputs=(0,), outputs=(3,),
    )
    plan = Plan(
        steps=(Step(0), Step(1, in_place=((0, 0),), scratch=ScratchRange(32, 8))),
        placements=(
            Placement(Space.INPUT), Placement(Space.CONSTANT, 1),
            Placement(Space.WORKSPACE, offset=16), Placement(Space.OUTPUT),
        ),
        workspace_size=40, alignment=16,
    )
    data = plan_data(graph, plan)
    assert data["workspace_bytes"] == 40
    assert [(t["tensor"], t["space"], t["offset"]) for t in data["tensors"]] == [
        ("in", "input", 0), ("mid", "workspace", 16), ("out", "output", 0)
    ]
    assert data["steps"][0] == {"node": "first", "in_place": [], "scratch": None}
    assert data["steps"][1]["in_place"] == [[0, 0]]
    assert data["steps"][1]["scratch"] == {"offset": 32, "bytes": 8}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON))
def test_json_is_as_python_writes_it(data: Json) -> None:
    assert json_bytes(data) == (json.dumps(data, indent=2) + "\n").encode()
