"""The modules of a whole model: both interfaces, their errors, metadata, registry, workspaces."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact, FunctionCall, RegistryEntry
from crtexport.backends.llvm.module import emit_llvm
from crtexport.simulation.library import ObjectLibrary, load_objects
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import LEVELS
from tests import packed_functions as crt
from tests.backends.llvm.llvm_support import (
    HOST,
    TARGETS,
    model,
    model_input,
    model_outputs,
    objects,
    objects_of,
)
from tests.packed_functions import run_packed, simulation_of

RUN = "tvmgen_m_run"


def _library(artifact: Artifact) -> ObjectLibrary:
    return load_objects(objects_of(artifact, HOST).values())


@pytest.fixture(scope="module")
def library() -> ObjectLibrary:
    return load_objects(objects("host").values())


def _check_outputs(outputs: Sequence[object]) -> None:
    for got, wanted in zip(outputs, model_outputs(model_input()), strict=True):
        np.testing.assert_array_equal(got, wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimize", LEVELS)
def test_run_computes_the_model(optimize: str) -> None:
    library = load_objects(objects("host", optimize).values())
    simulation = simulation_of(model(), library)
    for _ in range(2):
        _check_outputs(simulation.run([model_input()]))
        _check_outputs(run_packed(simulation, [model_input()]))


def test_workspace_of_the_caller() -> None:
    artifact = model(workspace_caller=True)
    library = _library(artifact)
    simulation = simulation_of(artifact, library)
    _check_outputs(simulation.run([model_input()]))
    _check_outputs(run_packed(simulation, [model_input()]))
    pools = crt.SystemLib(library).metadata("m").workspace_pools
    assert pools == (crt.CrtTensorInfo("workspace", (40,), (1, 8, 1)),)


def _addresses(*values: int) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(values))(*values)


def test_run_refuses_null_pointers(library: ObjectLibrary) -> None:
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address(RUN))
    x, y, z = (ctypes.create_string_buffer(64) for _ in range(3))
    at = [ctypes.addressof(b) for b in (x, y, z)]
    inputs, outputs = _addresses(at[0]), _addresses(at[1], at[2])
    assert run(inputs, outputs) == abi.OK
    assert run(None, outputs) == run(inputs, None) == abi.ERROR_NULL
    assert run(_addresses(0), outputs) == abi.ERROR_NULL
    assert run(inputs, _addresses(at[1], 0)) == abi.ERROR_NULL


def test_run_refuses_a_missing_workspace() -> None:
    library = _library(model(workspace_caller=True))
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(library.address(RUN))
    buffers = [ctypes.create_string_buffer(64) for _ in range(3)]
    at = [ctypes.addressof(b) for b in buffers]
    assert run(_addresses(at[0]), _addresses(*at[1:]), None) == abi.ERROR_NULL
    assert run(_addresses(at[0]), _addresses(*at[1:]), _addresses(0)) == abi.ERROR_NULL


def test_packed_call_checks_its_arguments(library: ObjectLibrary) -> None:
    system = crt.SystemLib(library)
    x = model_input()
    y, half = np.zeros((1, 10), np.int8), np.zeros(10, np.float16)
    tensors = [crt.tensor(a) for a in (x, y, half)]
    for code in abi.TENSOR_TYPE_CODES:
        assert system.call(RUN, tensors, code).code == abi.OK
    assert system.call(RUN, tensors, abi.TYPE_CODE_OPAQUE_HANDLE).code == abi.ERROR_ARGUMENTS
    assert system.call(RUN, tensors[:2]).code == abi.ERROR_ARGUMENTS
    assert system.call(RUN, [*tensors, tensors[0]]).code == abi.ERROR_ARGUMENTS
    packed = system.function(RUN)
    assert packed(None, None, 3, None, None, None) == abi.ERROR_NULL
    values, codes = (crt.TVMValue * 3)(), (ctypes.c_int * 3)(7, 13, 7)
    assert packed(values, codes, 3, None, None, None) == abi.ERROR_NULL
    tensors[1].data = None
    assert system.call(RUN, tensors).code == abi.ERROR_NULL


def test_packed_call_honours_byte_offsets(library: ObjectLibrary) -> None:
    y, half = np.zeros((1, 10), np.int8), np.zeros(10, np.float16)
    tensors = [crt.tensor(model_input(), 24), crt.tensor(y, 8), crt.tensor(half)]
    assert crt.SystemLib(library).call(RUN, tensors).code == abi.OK
    _check_outputs([y, half])


def test_registry_and_metadata(library: ObjectLibrary) -> None:
    system = crt.SystemLib(library)
    assert system.names == (RUN, "tvmgen_m_get_c_metadata")
    assert system.count == 2
    assert system.metadata("m") == crt.CrtMetadata(
        version=1,
        inputs=(crt.CrtTensorInfo("in_x_0", (1, 64), (0, 8, 1)),),
        outputs=(
            crt.CrtTensorInfo("Identity", (1, 10), (0, 8, 1)),
            crt.CrtTensorInfo("half", (10,), (2, 16, 1)),
        ),
        workspace_pools=(),
        mod_name="tvmgen_m",
    )


def test_metadata_needs_a_place_for_its_answer(library: ObjectLibrary) -> None:
    function = crt.SystemLib(library).function("tvmgen_m_get_c_metadata")
    assert function(None, None, 0, None, None, None) == abi.ERROR_NULL


def test_registry_can_be_left_out() -> None:
    assert list(emit_llvm(model(system_lib=False), HOST, "size")) == ["m_lib0.ll", "m_lib1.ll"]
    with pytest.raises(CrtExportError, match="no function registry"):
        crt.SystemLib(_library(model(system_lib=False)))


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 120, RUN])
def test_names_that_no_lookup_finds_are_refused(name: str) -> None:
    entries = (*model().registry, RegistryEntry(name, "tvmgen_m_run_packed"))
    with pytest.raises(CrtExportError, match="a name in the function registry must be unique"):
        emit_llvm(model(registry=entries), HOST, "size")


def test_text_from_the_model_stays_in_comments() -> None:
    for text in emit_llvm(model(), TARGETS["m4"], "size").values():
        assert "; sha-256: \\n; no comment\n" in text
        assert "\x1b" not in text
    text = emit_llvm(model(), TARGETS["m4"], "size")["m_lib0.ll"]
    assert "; of 0\\n}\n" in text
    assert "; a layer */ with\\nodd \\x1b \\ud800 日本 text\n" in text


def test_tables_of_big_endian_targets_are_swapped() -> None:
    big = replace(TARGETS["m4"], little_endian=False)
    modules = emit_llvm(model(), big, "size")
    assert r'c"\00\02tvmgen_m_run\00' in modules["m_lib2.ll"]


def test_artifacts_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(CrtExportError, match="'ghost' is wrong: it is not defined"):
        emit_llvm(model(calls=(FunctionCall("ghost", ()),)), HOST, "size")
    with pytest.raises(CrtExportError, match="'m_dense' is wrong: it takes 5 arguments, not 0"):
        emit_llvm(model(calls=(FunctionCall("m_dense", ()),)), HOST, "size")
