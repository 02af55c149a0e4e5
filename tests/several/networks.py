"""Small networks with something in common, and programs that call the models of a package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport.mlf.reader import Package

Array = npt.NDArray[Any]

WEIGHTS = np.random.default_rng(1).integers(-128, 128, (32, 24), dtype=np.int8)
OTHERS = np.random.default_rng(2).integers(-128, 128, (32, 24), dtype=np.int8)


def network(folder: Path, name: str, weights: Array, scale: float = 0.02) -> Path:
    """A file ``<name>.json`` with a fully connected layer and a softmax; int8, 24 to 32."""
    document = {
        "format": "crtexport-model", "version": 1, "name": name, "inputs": ["x"],
        "outputs": ["y"],
        "tensors": [
            _tensor("x", (1, 24), 0.05, 3),
            _tensor("w", weights.shape, 0.01, 0, data=weights.tolist()),
            _tensor("h", (1, 32), scale, -1),
            _tensor("y", (1, 32), 1 / 256, -128),
        ],
        "nodes": [
            {"op": "FullyConnected", "inputs": ["x", "w", None], "outputs": ["h"]},
            {"op": "Softmax", "inputs": ["h"], "outputs": ["y"]},
        ],
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def _tensor(
    name: str, shape: Sequence[int], scale: float, zero_point: int, **more: Any
) -> dict[str, Any]:
    return {
        "name": name, "dtype": "int8", "shape": list(shape),
        "quantization": {"scale": scale, "zero_point": zero_point}, **more,
    }


def inputs(package: Package, count: int = 2) -> dict[str, Array]:
    """Random samples for every model of a package, by ``MODEL/INPUT``."""
    rng = np.random.default_rng(7)
    return {
        f"{model.module}/{tensor.field}": rng.integers(
            -128, 128, (count, *(tensor.shape or ())), dtype=np.int8
        )
        for model in package.each for tensor in model.inputs
    }


_HEAD = """\
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/module.h>
@INCLUDES@

const TVMModule *TVMSystemLibEntryPoint(void);

static TVMBackendPackedCFunc find(const char *wanted)
{
    const TVMFuncRegistry *registry = TVMSystemLibEntryPoint()->registry;
    const char *name = registry->names + 2;
    for (int index = 0; *name != '\\0'; ++index) {
        if (strcmp(name, wanted) == 0) {
            return registry->funcs[index];
        }
        name += strlen(name) + 1;
    }
    return NULL;
}
"""

_MODEL = """
static int8_t in_@M@[@IN@], out_@M@[@OUT@];

static int by_header_@M@(void)
{
    struct tvmgen_@M@_inputs inputs = {in_@M@};
    struct tvmgen_@M@_outputs outputs = {out_@M@};
    return tvmgen_@M@_run(&inputs, &outputs);
}

static int by_name_@M@(void)
{
    TVMBackendPackedCFunc run = find("tvmgen_@M@_run");
    int64_t shapes[2] = {@IN@, @OUT@};
    DLTensor tensors[2];
    TVMValue args[2], result;
    int codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle}, code = 0;
    if (run == NULL) {
        return 99;
    }
    memset(tensors, 0, sizeof tensors);
    for (int i = 0; i < 2; ++i) {
        tensors[i].device.device_type = kDLCPU;
        tensors[i].ndim = 1;
        tensors[i].shape = &shapes[i];
        args[i].v_handle = &tensors[i];
    }
    tensors[0].data = in_@M@;
    tensors[1].data = out_@M@;
    return run(args, codes, 2, &result, &code, NULL);
}
"""

_READ = "    if (fread(in_@M@, 1, sizeof in_@M@, stdin) != sizeof in_@M@) return 1;"
_CALL = """\
    if (@HOW@_@M@() != 0) return 2;
    fwrite(out_@M@, 1, sizeof out_@M@, stdout);
    memset(out_@M@, 0, sizeof out_@M@);"""


def program(package: Package) -> str:
    """C: reads an input for each model, calls all alternately through their headers, then by name,
    twice, and writes what they gave. Each has one input and one output of int8."""
    models = package.each
    text = _HEAD.replace(
        "@INCLUDES@", "\n".join(f'#include "tvmgen_{model.module}.h"' for model in models)
    )
    text += "".join(_filled(_MODEL, model) for model in models)
    calls = [_filled(_READ, model) for model in models]
    for how in ("by_header", "by_name") * 2:
        calls += [_filled(_CALL, model).replace("@HOW@", how) for model in models]
    return text + "\nint main(void)\n{\n" + "\n".join(calls) + "\n    return 0;\n}\n"


def _filled(text: str, model: Package) -> str:
    (given,), (result,) = model.inputs, model.outputs
    text = text.replace("@M@", model.module).replace("@IN@", str(given.nbytes))
    return text.replace("@OUT@", str(result.nbytes))


def expected(outputs: Mapping[str, Sequence[Mapping[str, Array]]]) -> bytes:
    """Returns what :func:`program` writes when the models give the first of ``outputs`` each."""
    return b"".join(array.tobytes() for rows in outputs.values() for array in rows[0].values()) * 4
