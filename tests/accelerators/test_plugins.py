"""Plugins of other packages: found, asked, checked, and what they took computes the same."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crtexport
from crtexport.accelerators import names, offload
from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.support.errors import CrtExportError
from tests.accelerators.vendor import PLUGIN, install

BACKENDS = ("c", "llvm")
X = np.random.default_rng(5).integers(-128, 128, (1, 24), np.int8)


def tensor(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "dtype": "int8", "shape": [1, size],
            "quantization": {"scale": 0.5, "zero_point": -7}}


DOCUMENT: dict[str, Any] = {
    "format": "crtexport-model", "version": 1, "name": "odd */ \"name\"",
    "inputs": ["x"], "outputs": ["y"],
    "tensors": [tensor("x", 24), tensor("a", 24), tensor("b", 10), tensor("c", 10),
                tensor("y", 10)],
    "nodes": [
        {"op": "Relu", "inputs": ["x"], "outputs": ["a"]},
        {"op": "Slice", "inputs": ["a"], "outputs": ["b"],
         "attributes": {"begin": [0, 3], "size": [1, 10], "stride": [1, 1], "shape": [1, 10]}},
        {"op": "Tanh", "inputs": ["b"], "outputs": ["c"]},
        {"op": "Relu", "inputs": ["c"], "outputs": ["y"]},
    ],
}
DOCUMENT["tensors"][3]["quantization"] = {"scale": 1 / 128, "zero_point": 0}
DOCUMENT["tensors"][4]["quantization"] = {"scale": 1 / 128, "zero_point": 0}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``vendor(code)`` installs a package with the plugin ``vendor``; it is gone afterwards."""
    numbers = itertools.count()

    def put(code: str = PLUGIN, **kwargs: str) -> None:
        folder = tmp_path / f"site{next(numbers)}"
        folder.mkdir()
        install(folder, code, **kwargs)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "vendor_plugin", raising=False)

    return put


def changed(old: str, new: str) -> str:
    assert old in PLUGIN
    return PLUGIN.replace(old, new, 1)


@pytest.mark.parametrize("emit", BACKENDS)
@pytest.mark.parametrize("workspace", ["static", "caller"])
def test_taken_nodes_compute_the_same(
    model: Path, tmp_path: Path, vendor: Any, emit: Any, workspace: Any
) -> None:
    vendor()
    plain = crtexport.export(model, emit=emit, output=tmp_path / "plain.tar", workspace=workspace)
    taken = crtexport.export(
        model, emit=emit, output=tmp_path / "taken.tar", workspace=workspace,
        accelerators=["vendor"],
    )
    (expected,) = crtexport.simulate(plain.path, {"x": X})
    (found,) = crtexport.simulate(taken.path, {"x": X})
    np.testing.assert_array_equal(found["y"], expected["y"])
    assert len(taken.graph.nodes) == len(plain.graph.nodes) - 1
    assert [(d.layer, bool(d.function), d.reason) for d in taken.decisions] == [
        (str(plain.graph.nodes[0]), True, ""), (str(plain.graph.nodes[1]), True, ""),
        (str(plain.graph.nodes[3]), False, "a Slice must follow"),
    ]


def test_exports_with_a_plugin_are_the_same_bytes(
    model: Path, tmp_path: Path, vendor: Any
) -> None:
    vendor()
    first, second = (
        crtexport.export(model, output=tmp_path / name, accelerators=["vendor"]).path.read_bytes()
        for name in ("first.tar", "second.tar")
    )
    assert first == second


def test_boards_name_accelerators_and_the_option_overrules_them(
    model: Path, tmp_path: Path, vendor: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    vendor()
    board = tmp_path / "mine.yaml"
    board.write_text("name: mine\ndescription: mine\nextends: host\naccelerators: [vendor]\n")
    out = str(tmp_path / "out.tar")

    def functions(*more: str) -> list[str]:
        assert main([str(model), "--board", str(board), "-o", out, "--json", *more]) == 0
        return [d["function"] for d in json.loads(capsys.readouterr().out)["decisions"]]

    function = "tvmgen_odd_name_vendor_0"
    assert load_board(board).accelerators == ("vendor",)
    assert functions() == [function, function, ""]
    assert main(["inspect", out]) == 0
    assert "a Slice must follow" in capsys.readouterr().out
    assert functions("--accelerator", "none") == []


def test_unknown_names_are_refused_with_those_there_are(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tar"
    assert main([str(model), "-o", str(out), "--accelerator", "cmsis_nn"]) == 2
    text = capsys.readouterr().err
    assert "'cmsis_nn': there is no such accelerator" in text
    assert "did you mean cmsis-nn?" in text
    assert not out.exists()
    assert "cmsis-nn" in names()


MISTAKES = {
    "raises while asked": (
        changed("first = graph.nodes[node]", "first = graph.nodez[node]"),
        r"'vendor' → .*: the plugin's match failed: AttributeError",
    ),
    "raises while building": (
        changed("names = [", "names = 1 / 0, ["), "the plugin's build failed: ZeroDivisionError",
    ),
    "raises while imported": ("import nonexistent_thing", "can't be loaded: ModuleNotFoundError"),
    "has no build": (changed("def build", "def built"), "has no method 'build'"),
    "answers something else": (changed("return None", "return 7"), "match returned int"),
    "takes what isn't asked": (changed("(node, behind[0])", "(behind[0],)"), "lacks the node"),
    "takes what isn't there": (changed("(node, behind[0])", "(node, 99)"), "don't exist"),
    "forgets an output": (changed("second.outputs,", "(),"), "outputs aren't those"),
    "reads what isn't read": (
        changed("(first.inputs[0], constant)", "(second.outputs[0], constant)"),
        "is no input of the match",
    ),
    "has a constant of the wrong size": (changed("(256,)", "(255,)"), "bytes don't fit its type"),
    "wants scratch that can't be": (
        changed("graph.type(first.inputs[0]).nbytes,", "-1,"), "wants -1 bytes",
    ),
    "builds too few": (changed("Built(tuple(names)", "Built(()"), "built 0 functions"),
    "promises nothing": (changed("tuple(map(ModuleFunction, names))", "()"), "none of the plugin"),
    "takes another's name": (
        changed('f"{prefix}_{i}"', 'f"memcpy{i}"'), "doesn't begin with tvmgen_m_vendor",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_plugins_are_told_with_plugin_and_node(
    model: Path, vendor: Any, mistake: str
) -> None:
    code, message = MISTAKES[mistake]
    vendor(code)
    with pytest.raises(CrtExportError, match=message) as error:
        offload(load(model), ["vendor"], load_board("host").target, "tvmgen_m")
    assert error.value.exit_code == 2
    assert "vendor" in error.value.location[0]


def test_two_plugins_of_one_name_are_refused(model: Path, vendor: Any) -> None:
    vendor()
    vendor(distribution="rival")
    with pytest.raises(CrtExportError, match=r"have this name: rival 1\.0, vendor 1\.0"):
        offload(load(model), ["vendor"], load_board("host").target, "tvmgen_m")


def test_functions_that_lack_their_file_are_refused(
    model: Path, tmp_path: Path, vendor: Any
) -> None:
    vendor(changed("int32_t NAME(const void *input, const void *table, void *output, void "
                   "*scratch);\nint32_t NAME", "int32_t OTHER"))
    with pytest.raises(CrtExportError, match="is not in"):
        crtexport.export(model, output=tmp_path / "out.tar", accelerators=["vendor"])
    assert not (tmp_path / "out.tar").exists()
