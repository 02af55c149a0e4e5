"""Networks with IF and WHILE give what the reference runtime gives, however they are exported."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import crtexport
from crtexport.importers import load
from crtexport.importers.crtjson import save
from crtexport.ir.text import dump
from crtexport.kir.language import Scalar
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.simulation.package import load_package
from crtexport.simulation.tflite_writer import to_tflite
from tests.control.networks import NETWORKS, Array, Network, collected, same, swapped
from tests.helpers import reference, require, require_reference
from tests.packages import compile_strictly

Emit = Literal["c", "llvm"]
EVERY = pytest.mark.parametrize("name", NETWORKS)


@functools.cache
def network(name: str) -> Network:
    return NETWORKS[name]()


@functools.cache
def expected(name: str) -> list[list[Array]]:
    """Returns what the reference runtime gives in each run."""
    net = network(name)
    runtime = reference(to_tflite(net.graph))
    return [runtime.run(given) for given in net.runs]


def written(name: str, folder: Path) -> Path:
    path = folder / "net.tflite"
    path.write_bytes(to_tflite(network(name).graph))
    return path


@pytest.mark.parametrize("emit", ["c", "llvm"])
@EVERY
def test_each_run_equals_the_reference(name: str, emit: Emit, tmp_path: Path) -> None:
    model, path = written(name, tmp_path), tmp_path / "net.tar"
    crtexport.export(model, emit=emit, output=path)
    simulation = load_package(open_package(path))
    for given, wanted in zip(network(name).runs, expected(name), strict=True):
        same(simulation.run(given), wanted)


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("name", ["collatz", "remembering"])
def test_the_caller_may_own_the_workspace(name: str, emit: Emit, tmp_path: Path) -> None:
    path = tmp_path / "net.tar"
    crtexport.export(network(name).graph, emit=emit, output=path, workspace="caller")
    simulation = load_package(open_package(path))
    for given, wanted in zip(network(name).runs, expected(name), strict=True):
        same(simulation.run(given), wanted)


FEW = (("ram", 16), ("flash", 1 << 20))
"""The emulated boards' flash can be written."""


@pytest.mark.parametrize("name", ["collatz", "collected", "sums", "counting"])
def test_graphs_may_lie_in_a_further_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tar"
    made = crtexport.export(
        network(name).graph, board="mps2_an386", emit="c", output=path, pools=FEW
    )
    assert any(step.scratch is not None and step.scratch.pool for step in made.plan.steps)
    simulation = load_package(open_package(path))
    for given, wanted in zip(network(name).runs, expected(name), strict=True):
        same(simulation.run(given), wanted)


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_what_a_loop_writes_wholly_needs_no_start(emit: Emit, tmp_path: Path) -> None:
    """All rows from the first one on: the file for the runtime starts with zeros."""
    net, path = collected(whole_start=False), tmp_path / "net.tar"
    made = crtexport.export(net.graph, emit=emit, output=path)
    assert not any(constant.dtype is Scalar.F32 for constant in made.artifact.constants)
    simulation = load_package(open_package(path))
    (given,) = (run for run in net.runs if run[0].item() == 0)
    same(simulation.run(given), expected("collected")[net.runs.index(given)])
    same(simulation.run(given), reference(to_tflite(net.graph)).run(given))
    save(net.graph, tmp_path / "net.json")
    assert dump(load(tmp_path / "net.json")) == dump(net.graph)


def test_bodies_may_exchange_what_goes_round(tmp_path: Path) -> None:
    """As its inputs say, which the runtime, copying one result after the other, gets wrong."""
    net, path = swapped(), tmp_path / "net.tar"
    crtexport.export(net.graph, output=path)
    simulation = load_package(open_package(path))
    for a, b, fixed, limit in net.runs:
        count, first, second, third, last = simulation.run((a, b, fixed, limit))
        assert count == limit == last
        same([first, second, third], [*((b, a) if limit % 2 else (a, b)), fixed])


@EVERY
def test_model_json_says_the_same(name: str, tmp_path: Path) -> None:
    graph = load(written(name, tmp_path))
    save(graph, tmp_path / "net.json")
    again = load(tmp_path / "net.json")
    assert dump(again) == dump(graph)
    assert driver.stage(again, "kernels") == driver.stage(graph, "kernels")
    assert driver.stage(again, "plan") == driver.stage(graph, "plan")
    save(again, tmp_path / "more.json")
    text = (tmp_path / "more.json").read_text().replace("more.safetensors", "net.safetensors")
    assert text == (tmp_path / "net.json").read_text()


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_generated_c_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    for name in NETWORKS:
        path, folder = tmp_path / f"{name}.tar", tmp_path / name
        crtexport.export(
            network(name).graph, board="mps2_an386", emit="c", output=path, module_name=name
        )
        package = open_package(path)
        package.extract(folder)
        compile_strictly(package, folder, compiler)


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("name", ["collatz", "images"])
def test_a_microcontroller_decides_alike(name: str, emit: Emit, tmp_path: Path) -> None:
    require("qemu-system-arm")
    require("arm-none-eabi-gcc")
    path, net = tmp_path / "net.tar", network(name)
    exported = crtexport.export(net.graph, board="mps2_an386", emit=emit, output=path)
    fields = [i.field for i in exported.artifact.inputs]
    stacked = {f: np.stack([run[i] for run in net.runs]) for i, f in enumerate(fields)}
    for got, wanted in zip(crtexport.run(path, stacked).outputs, expected(name), strict=True):
        same(got, wanted)


@pytest.mark.parametrize("name", ["branch", "images", "remembering", "rounds"])
def test_verify_takes_them_whole_and_layer_by_layer(name: str, tmp_path: Path) -> None:
    require_reference()
    model = written(name, tmp_path)
    assert crtexport.verify(model, samples=4).agrees
    layers = crtexport.verify_layers(model, samples=4)
    assert layers.agrees
    assert any("IF" in layer.operator or "WHILE" in layer.operator for layer in layers.layers)


def test_the_package_tells_the_plans_of_inner_graphs(tmp_path: Path) -> None:
    path = tmp_path / "net.tar"
    crtexport.export(network("collatz").graph, output=path)
    open_package(path).extract(tmp_path / "net")
    (found,) = (tmp_path / "net").rglob("plan.json")
    (step,) = json.loads(found.read_text())["steps"]
    condition, body = step["graphs"]
    assert condition["outputs"] == [condition["plan"]["workspace_bytes"]]
    inner = [s for s in body["plan"]["steps"] if "graphs" in s]
    assert [len(s["graphs"]) for s in inner] == [2]
    assert inner[0]["graphs"][0]["outputs"] == [None]
