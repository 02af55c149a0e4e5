"""Functions with TVM's packed signature: called by networks, and found by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.mlf.reader import open_package
from crtexport.simulation.package import load_package
from crtexport.support.errors import CrtExportError
from tests.helpers import require
from tests.mlf.consumers import complaints
from tests.packages import compile_strictly
from tests.packed_functions import SystemLib, tensor

BACKENDS = ("c", "llvm")
X = np.arange(-6, 6, dtype=np.float32).reshape(2, 2, 3)
ADDED = np.array([0.5, -1, 2], np.float32)
SOURCE = """
#include <tvm/runtime/c_backend_api.h>
int blend(TVMValue *args, int *type_codes, int num_args, TVMValue *ret_value,
          int *ret_type_code, void *resource_handle);
int count(TVMValue *args, int *type_codes, int num_args, TVMValue *ret_value,
          int *ret_type_code, void *resource_handle);

static int is(const DLTensor *tensor, int ndim, DLDataTypeCode code, int bits)
{
    return tensor->ndim == ndim && tensor->dtype.code == code && tensor->dtype.bits == bits
        && tensor->dtype.lanes == 1 && tensor->device.device_type == kDLCPU
        && tensor->strides == NULL && tensor->byte_offset == 0;
}

/* y[i][j][k] = x[i][j][k] * scale + added[k] */
int blend(TVMValue *args, int *type_codes, int num_args, TVMValue *ret_value,
          int *ret_type_code, void *resource_handle)
{
    const DLTensor *x = args[0].v_handle, *scale = args[1].v_handle, *y = args[2].v_handle;
    const DLTensor *added = args[3].v_handle;
    int i;

    (void)ret_value;
    for (i = 0; i < num_args; ++i) {
        if (type_codes[i] != kTVMDLTensorHandle) {
            return -71;
        }
    }
    if (num_args != 4 || resource_handle != NULL || *ret_type_code != kTVMNullptr) {
        return -72;
    }
    if (!is(x, 3, kDLFloat, 32) || !is(scale, 0, kDLFloat, 32) || !is(y, 3, kDLFloat, 32)
        || !is(added, 1, kDLFloat, 32) || added->shape[0] != x->shape[2]) {
        return -73;
    }
    for (i = 0; i < x->shape[0] * x->shape[1] * x->shape[2]; ++i) {
        ((float *)y->data)[i] = ((const float *)x->data)[i] * *(const float *)scale->data
            + ((const float *)added->data)[i % (int)added->shape[0]];
    }
    return 0;
}

/* How many elements are above 0; counts its calls in the context, if there is one. */
int count(TVMValue *args, int *type_codes, int num_args, TVMValue *ret_value,
          int *ret_type_code, void *resource_handle)
{
    const DLTensor *x = args[0].v_handle, *y = args[1].v_handle;
    int32_t found = 0;
    int i, size = 1;

    (void)type_codes;
    (void)ret_value;
    (void)ret_type_code;
    (void)resource_handle;
    if (num_args != 2 || !is(y, 1, kDLInt, 32)) {
        return -74;
    }
    for (i = 0; i < x->ndim; ++i) {
        size *= (int)x->shape[i];
    }
    for (i = 0; i < size; ++i) {
        found += ((const float *)x->data)[i] > 0.0f;
    }
    *(int32_t *)y->data = found;
    return 0;
}
"""


def _float(name: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": shape, **more}


def _call(function: str, inputs: list[str], output: str) -> dict[str, Any]:
    return {"op": "External", "inputs": inputs, "outputs": [output],
            "attributes": {"function": function}}


def write(folder: Path, name: str = "packed", **changes: Any) -> Path:
    """blend; count of that and of the input, in another shape."""
    (folder / "functions.c").write_text(SOURCE)
    document = {
        "format": "crtexport-model", "version": 1, "name": name,
        "inputs": ["x"], "outputs": ["y", "n", "m"],
        "modules": [{"name": "own", "kind": "c-source", "files": ["functions.c"], "functions": [
            {"name": "blend", "signature": "packed", "const_vars": ["added"]},
            {"name": "count", "signature": "packed"},
        ]}],
        "tensors": [
            _float("x", [2, 2, 3]), _float("y", [2, 2, 3]), _float("flat", [12]),
            _float("scale", [], data=3.0), _float("added", [3], data=ADDED.tolist()),
            {"name": "n", "dtype": "int32", "shape": [1]},
            {"name": "m", "dtype": "int32", "shape": [1]},
        ],
        "nodes": [
            _call("blend", ["x", "scale"], "y"), _call("count", ["y"], "n"),
            {"op": "Reshape", "inputs": ["x"], "outputs": ["flat"], "attributes": {"shape": [12]}},
            _call("count", ["flat"], "m"),
        ],
        **changes,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def check(outputs: Sequence[Any]) -> None:
    wanted = X * np.float32(3) + ADDED
    y, n, m = outputs
    np.testing.assert_array_equal(y.reshape(X.shape), wanted)
    assert (n.item(), m.item()) == (np.count_nonzero(wanted > 0), np.count_nonzero(X > 0))


@pytest.mark.parametrize("emit", BACKENDS)
def test_packed_functions_are_given_tensors(emit: Any, tmp_path: Path) -> None:
    require("gcc")
    package = crtexport.export(write(tmp_path), emit=emit, output=tmp_path / "p.tar").path
    assert complaints(package) == []
    (outputs,) = crtexport.simulate(package, {"x": X[None]})
    check([outputs[name] for name in ("y", "n", "m")])


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("board", ["mps2_an386", "qemu_x86"])
def test_packed_functions_run_on_boards(board: str, emit: Any, tmp_path: Path) -> None:
    chosen = load_board(board)
    require(chosen.toolchain.compiler[0])
    require(chosen.runner.command[0])  # type: ignore[union-attr]
    package = crtexport.export(
        write(tmp_path), board=board, emit=emit, output=tmp_path / "p.tar"
    ).path
    (outputs,) = crtexport.run(package, {"x": X[None]}).outputs
    check(outputs)


@pytest.mark.parametrize("emit", BACKENDS)
def test_the_registry_of_all_models_has_them_once(emit: Any, tmp_path: Path) -> None:
    require("gcc")
    package = crtexport.export(
        [write(tmp_path, "one"), write(tmp_path, "two")], emit=emit, output=tmp_path / "p.tar"
    ).path
    system = SystemLib(load_package(open_package(package).select("two")).library)
    assert sorted(system.names) == sorted((
        "tvmgen_one_run", "tvmgen_one_get_c_metadata", "blend", "count",
        "tvmgen_two_run", "tvmgen_two_get_c_metadata",
    ))
    found = np.zeros(1, np.int32)
    assert system.call("count", [tensor(X), tensor(found)]).code == 0
    assert found.item() == np.count_nonzero(X > 0)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_their_callers_compile_without_a_warning(compiler: str, tmp_path: Path) -> None:
    path = crtexport.export(
        write(tmp_path), board="mps2_an386", emit="c", output=tmp_path / "p.tar"
    ).path
    package = open_package(path)
    package.extract(tmp_path)
    assert "tvmgen_packed_packed_calls.c" in package.sources
    (tmp_path / "codegen/host/src/functions.c").write_text("typedef int nothing;\n")
    compile_strictly(package, tmp_path, compiler)


def test_devices_of_packed_functions_are_opened(tmp_path: Path) -> None:
    require("gcc")
    document = json.loads(write(tmp_path).read_text())
    document["modules"][0]["functions"][1]["device"] = {"kind": "test-acc"}
    source = (tmp_path / "functions.c").read_text().replace(
        "    (void)resource_handle;\n    if (num_args != 2",
        "    if (crt_simulated_run(resource_handle) != 0) {\n        return -75;\n    }\n"
        "    if (num_args != 2",
    )
    (tmp_path / "functions.c").write_text('#include "crt_simulated.h"\n' + source)
    (tmp_path / "packed.json").write_text(json.dumps(document))
    package = crtexport.export(tmp_path / "packed.json", output=tmp_path / "p.tar").path
    (outputs,) = crtexport.simulate(package, {"x": X[None]})
    check([outputs[name] for name in ("y", "n", "m")])


def test_more_arguments_than_the_runtime_passes_are_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path, inputs=["x"], outputs=["y"],
        tensors=[_float(name, [1]) for name in ("x", "y")],
        nodes=[_call("count", ["x"] * 10, "y")],
        modules=[{"name": "own", "kind": "c-source", "files": ["functions.c"],
                  "functions": [{"name": "count", "signature": "packed"}]}],
    )
    with pytest.raises(CrtExportError, match="'count' would be given 11 arguments"):
        crtexport.export(path, output=tmp_path / "p.tar")
    assert not (tmp_path / "p.tar").exists()
