"""Arm's compiler Vela in tests: what it makes of a model, and C that stands in for the NPU."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import tflite

import crtexport
from crtexport.mlf.reader import open_package
from tests.helpers import unavailable

STAND_IN = Path(__file__).with_name("npu.c")


def vela_program() -> str:
    """The path of Vela; without it see unavailable()."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("vela", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        unavailable("vela", "Vela (the Python package ethos-u-vela) is not installed")
    return found


@functools.cache
def compiled(model: Path, accelerator: str = "ethos-u55-128", *options: str) -> Path:
    """Returns the .tflite file that Vela makes of one."""
    folder = Path(mkdtemp(prefix="crtexport-vela-"))
    subprocess.run(
        [vela_program(), model, "--accelerator-config", accelerator, "--output-dir", folder,
         *options],
        check=True, capture_output=True,
    )
    return folder / f"{model.stem}_vela.tflite"


@dataclass(frozen=True)
class Launch:
    """The facts of one operator for the NPU in a file: names and bytes of what is behind its base
    addresses, and the places of inputs and outputs in the arena."""

    commands: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    places: tuple[int, ...]
    inputs: int
    apart: bool


_ITEMS = {tflite.TensorType.INT8: 1, tflite.TensorType.UINT8: 1, tflite.TensorType.INT16: 2,
          tflite.TensorType.INT32: 4}


def launches(path: Path) -> list[Launch]:
    """The operators for the NPU, read from the file with nothing of ours."""
    model: Any = tflite.Model.GetRootAs(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    (metadata,) = (
        model.Buffers(table.Buffer()).DataAsNumpy().tobytes()
        for table in (model.Metadata(i) for i in range(model.MetadataLength()))
        if table.Name() == b"OfflineMemoryAllocation"
    )
    places = struct.unpack(f"<{len(metadata) // 4}i", metadata)[3:]

    def size(number: int) -> int:
        tensor = graph.Tensors(number)
        return int(np.prod(tensor.ShapeAsNumpy())) * _ITEMS[tensor.Type()]

    found = []
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        if model.OperatorCodes(operator.OpcodeIndex()).CustomCode() != b"ethos-u":
            continue
        inputs = operator.InputsAsNumpy().tolist()
        behind = [*inputs[1:], *operator.OutputsAsNumpy().tolist()][:8]
        found.append(Launch(
            size(inputs[0]),
            tuple(graph.Tensors(t).Name().decode() for t in behind), tuple(map(size, behind)),
            tuple(places[t] - places[inputs[2]] for t in behind[3:]), len(inputs) - 4,
            inputs[2] != inputs[3],
        ))
    return found


def layers(model: Path, name: str, folder: Path) -> Path:
    """One C source that defines ``tvmgen_<name>_run`` for the layers of ``model``."""
    package = open_package(crtexport.export(
        model, emit="c", module_name=name, output=folder / f"{name}.tar"
    ).path)
    text = package.sources[f"{name}_lib0.c"]
    path = folder / f"{name}.c"
    header = package.header or ""
    path.write_text(
        text.replace(f'#include "tvmgen_{name}.h"', header), encoding="utf-8"
    )
    (folder / f"tvmgen_{name}.h").write_text(header, encoding="utf-8")
    return path


def stand_in(
    compiled_model: Path, parts: Sequence[Path], folder: Path, *, log2_macs: int = 7,
    fast: int = 0,
) -> list[Path]:
    """C sources of an NPU that runs ``compiled_model``: its n-th operator computes ``parts[n]``,
    a model whose inputs are called as those of the operator."""
    found = launches(compiled_model)
    assert len(found) == len(parts)
    sources, headers, cases, expected = [], [], [], []
    for number, (part, launch) in enumerate(zip(parts, found, strict=True)):
        name = f"part{number}"
        sources.append(layers(part, name, folder))
        package = open_package(folder / f"{name}.tar")
        inside = list(launch.names[3 : 3 + launch.inputs])
        members = [
            f"inputs.{t.field} = given[{inside.index(t.name)}];" for t in package.inputs
        ]
        (output,) = package.outputs
        headers.append((folder / f"tvmgen_{name}.h").read_text(encoding="utf-8"))
        cases.append(
            f"case {number}: {{ struct tvmgen_{name}_inputs inputs;"
            f" struct tvmgen_{name}_outputs outputs; {' '.join(members)}"
            f" outputs.{output.field} = made; return tvmgen_{name}_run(&inputs, &outputs); }}"
        )
        sizes = ", ".join(map(str, launch.sizes))
        places = ", ".join(map(str, launch.places))
        numbers = f"{launch.commands}, {len(launch.sizes)}, {launch.inputs}"
        expected.append(f"{{{numbers}, {{{sizes}}}, {{{places}}}}}")
    most = max(size for launch in found for size in launch.sizes[3:])
    text = "\n".join([
        "#include <stddef.h>", "#include <stdint.h>", "#include <string.h>", *headers,
        f"#define LAUNCHES {len(parts)}", f"#define LOG2_MACS {log2_macs}u",
        f"#define FAST {fast}u", f"#define MAX_BYTES {most}",
        f"#define MAX_GIVEN {max(launch.inputs for launch in found)}",
        "struct npu_launch { size_t commands; int count, inputs; size_t sizes[8], places[8]; };",
        f"static const struct npu_launch npu_expected[LAUNCHES] = {{{', '.join(expected)}}};",
        "static int npu_compute(int number);",
        STAND_IN.read_text(encoding="utf-8"),
        "static int npu_compute(int number) {", "switch (number) {", *cases,
        "default: return -1;", "}", "}", "",
    ])
    path = folder / "npu.c"
    path.write_text(text, encoding="utf-8")
    return [path, *sources]
