"""A Zephyr application with several networks that checks their outputs by hashes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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


def write_constant(folder: Path, models: Path, app: Path, arguments: str) -> None:
    """An application in ``folder`` that runs vww96 on the standard input, which is a constant."""
    graph = importers.load(models / "vww96_int8.tflite")
    inputs = graph.type(graph.inputs[0]).nbytes
    values = ", ".join(str((i * 37 + 11) % 256 - 128) for i in range(inputs))
    text = _RUN.format(
        name="vww96", inputs=inputs, outputs=graph.type(graph.outputs[0]).nbytes,
        hash=int(str(tflm_outputs()["vww96_int8"]["fnv1a"]), 0),
    )
    text = text.replace(
        f"static int8_t vww96_in[{inputs}] __aligned(16);",
        f"static const int8_t vww96_in[{inputs}] __aligned(16) = {{{values}}};",
    )
    filled = text.index("    for (uint32_t i = 0; i < ")
    text = text[:filled] + text[text.index("    if (tvmgen_"):]
    write_application(folder, app, _HEAD + text + _MAIN.format(calls="vww96()", count=1), [
        f"crtexport_model(TARGET app NAME vww96 MODEL {models}/vww96_int8.tflite {arguments})"
    ])


def write_application(folder: Path, app: Path, main: str, models: Sequence[str]) -> None:
    """An application in ``folder`` of ``main`` and calls of crtexport_model()."""
    folder.mkdir(parents=True)
    (folder / "main.c").write_text(main)
    (folder / "CMakeLists.txt").write_text(_CMAKE.format(app=app, models="\n".join(models)))
    (folder / "prj.conf").write_text("CONFIG_CRTEXPORT=y\nCONFIG_MAIN_STACK_SIZE=4096\n")
    (folder / "Kconfig").write_text((app / "Kconfig").read_text())
