"""A Zephyr application with several networks that checks their outputs by hashes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtexport import importers
from tests.helpers import INT8_NETWORKS, tflm_outputs

_HEAD = """\
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>
#include "leave.h"
"""
_RUN = """
#include <tvmgen_{name}.h>
static int8_t {name}_in[{inputs}] __aligned(16);
static int8_t {name}_out[{outputs}] __aligned(16);

static int {name}(void)
{{
    struct tvmgen_{name}_inputs in = {{{name}_in}};
    struct tvmgen_{name}_outputs out = {{{name}_out}};
    uint32_t hash = 2166136261u;

    for (uint32_t i = 0; i < {inputs}u; i++) {{
        {name}_in[i] = (int8_t)((int)((i * 37u + 11u) % 256u) - 128);
    }}
    if (tvmgen_{name}_run(&in, &out) != 0) {{
        return 0;
    }}
    for (uint32_t i = 0; i < {outputs}u; i++) {{
        hash = (hash ^ (uint8_t){name}_out[i]) * 16777619u;
    }}
    printk("{name}: %08x\\n", hash);
    return hash == {hash}u;
}}
"""
_MAIN = """
int main(void)
{{
    int exact = {calls};

    printk("%d networks exact\\n", exact);
    leave(exact == {count} ? 0 : 1);
    return 0;
}}
"""
_CMAKE = """\
cmake_minimum_required(VERSION 3.20)
list(APPEND ZEPHYR_EXTRA_MODULES {app})
find_package(Zephyr REQUIRED HINTS $ENV{{ZEPHYR_BASE}})
project(networks)
target_sources(app PRIVATE main.c {app}/src/leave.c)
target_include_directories(app PRIVATE {app}/src)
{models}
"""


def write_networks(folder: Path, models: Path, app: Path) -> None:
    """An application in ``folder`` that runs the int8 networks, each on the standard input."""
    text, cmake, names = _HEAD, [], []
    for network in INT8_NETWORKS:
        name = network.removesuffix("_int8")
        graph = importers.load(models / f"{network}.tflite")
        text += _RUN.format(
            name=name, inputs=graph.type(graph.inputs[0]).nbytes,
            outputs=graph.type(graph.outputs[0]).nbytes,
            hash=int(str(tflm_outputs()[network]["fnv1a"]), 0),
        )
        cmake.append(
            f"crtexport_model(TARGET app NAME {name} MODEL {models}/{network}.tflite)"
        )
        names.append(name)
    text += _MAIN.format(calls=" + ".join(f"{n}()" for n in names), count=len(names))
    write_application(folder, app, text, cmake)


def write_constant(folder: Path, app: Path, arguments: str) -> None:
    """An application in ``folder`` that reduces an image of 93 kB, which is a constant, to the
    largest values of its blocks."""
    shape = (1, 176, 176, 3)
    image = (np.arange(math.prod(shape)) * 37 + 11) % 256 - 128
    blocks = image.reshape(44, 4, 44, 4, 3).max(axis=(1, 3))
    tensors = [
        {"name": name, "dtype": "int8", "shape": size, "quantization": {"scale": 0.5}}
        for name, size in (("x", shape), ("y", (1, *blocks.shape)))
    ]
    text = _RUN.format(
        name="blocks", inputs=image.size, outputs=blocks.size, hash=_fnv1a(blocks.astype(np.int8))
    )
    values = ", ".join(map(str, image.tolist()))
    text = text.replace(
        f"static int8_t blocks_in[{image.size}] __aligned(16);",
        f"static const int8_t blocks_in[{image.size}] __aligned(16) = {{{values}}};",
    )
    filled = text.index("    for (uint32_t i = 0; i < ")
    text = text[:filled] + text[text.index("    if (tvmgen_"):]
    write_application(folder, app, _HEAD + text + _MAIN.format(calls="blocks()", count=1), [
        f"crtexport_model(TARGET app NAME blocks MODEL model.json {arguments})"
    ])
    (folder / "model.json").write_text(json.dumps({
        "format": "crtexport-model", "version": 1, "name": "blocks",
        "inputs": ["x"], "outputs": ["y"], "tensors": tensors,
        "nodes": [{
            "op": "MaxPool2D", "inputs": ["x"], "outputs": ["y"],
            "attributes": {"window": [4, 4], "stride": [4, 4]},
        }],
    }))


def _fnv1a(values: npt.NDArray[np.int8]) -> int:
    result = 2166136261
    for value in values.tobytes():
        result = (result ^ value) * 16777619 & 0xFFFFFFFF
    return result


def write_application(folder: Path, app: Path, main: str, models: Sequence[str]) -> None:
    """An application in ``folder`` of ``main`` and calls of crtexport_model()."""
    folder.mkdir(parents=True)
    (folder / "main.c").write_text(main)
    (folder / "CMakeLists.txt").write_text(_CMAKE.format(app=app, models="\n".join(models)))
    (folder / "prj.conf").write_text("CONFIG_CRTEXPORT=y\nCONFIG_MAIN_STACK_SIZE=4096\n")
    (folder / "Kconfig").write_text((app / "Kconfig").read_text())
