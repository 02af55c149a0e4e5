"""Several models in one firmware: alternately, by header and by name, and what that takes of
flash."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.cli.main import main
from crtexport.firmware.frame import parse_frames
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.project import ELF
from crtexport.firmware.qemu import run_qemu
from crtexport.firmware.sections import TEST_INPUTS, read_sections
from crtexport.firmware.toolchain import run_tool
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError
from tests.exports import exported_network
from tests.helpers import reference, require, require_reference, shared_model
from tests.several.networks import OTHERS, WEIGHTS, inputs, network

BACKENDS = ("c", "llvm")
NETWORKS = ("ad01_int8", "kws_int8", "vww96_int8")

_BY_NAME = """
#include <tvm/runtime/c_runtime_api.h>
#include <tvm/runtime/crt/module.h>

const TVMModule *TVMSystemLibEntryPoint(void);

/* What the registry has under a name, called with an input and an output. */
static int32_t by_name(const char *wanted, const void *input, void *output)
{
    const TVMFuncRegistry *registry = TVMSystemLibEntryPoint()->registry;
    const char *name = registry->names + 2;
    DLTensor tensors[2] = {{(void *)(uintptr_t)input, {kDLCPU, 0}, 0, {0, 8, 1}, 0, 0, 0},
                           {output, {kDLCPU, 0}, 0, {0, 8, 1}, 0, 0, 0}};
    TVMValue args[2], result;
    int codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle}, code = 0;

    args[0].v_handle = &tensors[0];
    args[1].v_handle = &tensors[1];
    for (int index = 0; *name != '\\0'; ++index) {
        const char *letter = wanted;
        while (*letter != '\\0' && *letter == *name) {
            ++letter;
            ++name;
        }
        if (*letter == '\\0' && *name == '\\0') {
            return registry->funcs[index](args, codes, 2, &result, &code, NULL);
        }
        while (*name != '\\0') {
            ++name;
        }
        ++name;
    }
    return 99;
}

/* One instruction, the return"""


def alternating(text: str) -> str:
    """The firmware's main file, with every second run of each model by its name."""
    text = text.replace("\n/* One instruction, the return", _BY_NAME, 1)
    fields = dict(re.findall(r"^    outputs_(\d)\.(\w+) = ", text, re.M))
    given = dict(re.findall(r"^    inputs_(\d)\.(\w+) = ", text, re.M))
    assert len(fields) == len(given) == text.count("_run(&")

    def both(found: re.Match[str]) -> str:
        number = found[2]
        return (
            "static unsigned runs;\n\n"
            f"    if (runs++ % 2u == 0u) {{\n        {found[0]}\n    }}\n"
            f'    return by_name("{found[1]}", inputs_{number}.{given[number]}, '
            f"outputs_{number}.{fields[number]});"
        )

    return re.sub(r"return (tvmgen_\w+_run)\(&inputs_(\d), &outputs_\2\);", both, text)


@pytest.fixture(scope="module", params=BACKENDS)
def three(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A backend, and its package of all networks for a Cortex-M4."""
    models = [shared_model(name) for name in NETWORKS]
    path = tmp_path_factory.mktemp("several") / "three.tar"
    crtexport.export(models, board="mps2_an386", emit=request.param, output=path)
    return request.param, path


def test_three_networks_run_in_turns_by_header_and_by_name(
    three: tuple[str, Path], tmp_path: Path
) -> None:
    """On a Cortex-M4; the firmware itself compares both ways, here is the reference runtime."""
    for tool in ("arm-none-eabi-gcc", "make", "qemu-system-arm"):
        require(tool)
    require_reference()
    models = [shared_model(name) for name in NETWORKS]
    _, path = three
    package = open_package(path)
    given = inputs(package, 1)
    crtexport.run_all(path, given, out_dir=tmp_path / "firmware")
    source = tmp_path / "firmware/firmware/main.c"
    source.write_text(alternating(source.read_text()))
    run_tool(["make", "-s"], cwd=tmp_path / "firmware", what="building")
    parts, board = parts_from_package(package), board_from_package(package)
    elf = tmp_path / "firmware" / ELF
    frames = parse_frames(
        run_qemu(board, elf, timeout=120).console,
        [tuple(p.nbytes for p in part.outputs) for part in parts.models],
        read_sections(elf, board),
    )
    for model, frame, array, file in zip(package.each, frames, given.values(), models, strict=True):
        assert frame.statuses == (0, 0)
        by_name, by_header = frame.outputs
        assert by_name == by_header
        (wanted,) = reference(file).run([array[0].reshape(model.inputs[0].shape or ())])
        assert by_header == (wanted.tobytes(),)


def test_all_models_together_take_what_they_take_alone_but_for_what_they_share(
    three: tuple[str, Path], tmp_path: Path
) -> None:
    """Flash of the whole program: start-up and output are there once, not once for each."""
    for tool in ("arm-none-eabi-gcc", "make"):
        require(tool)

    def flash(package: Path) -> dict[str, int]:
        return crtexport.build(package, tmp_path / package.stem).sections.flash

    emit, path = three
    together = flash(path)
    alone = [flash(exported_network(name, "mps2_an386", emit).path) for name in NETWORKS]
    model_parts = (".model_text", ".model_rodata")
    total = sum(size for name, size in together.items() if name != TEST_INPUTS)
    separate = sum(part[name] for part in alone for name in model_parts)
    firmware = max(
        sum(s for name, s in part.items() if name not in (*model_parts, TEST_INPUTS))
        for part in alone
    )
    assert sum(together[name] for name in model_parts) <= separate + 16  # gaps
    assert total <= 1.01 * (separate + firmware)


def test_small_networks_share_code_in_flash(tmp_path: Path) -> None:
    """The second of two equal networks takes its entry points and nothing else."""
    require("arm-none-eabi-gcc")
    first, second = (network(tmp_path, name, WEIGHTS) for name in ("first", "second"))

    def taken(models: list[Path], folder: str) -> int:
        path = crtexport.export(
            models, board="mps2_an386", emit="llvm", output=tmp_path / "p.tar"
        ).path
        sizes = crtexport.build(path, tmp_path / folder).sections.flash
        return sizes[".model_text"] + sizes[".model_rodata"]

    more = taken([first, second], "two") - taken([first], "one")
    assert 0 < more < 300


@pytest.mark.parametrize("workspace", ["static", "caller"])
@pytest.mark.parametrize("io", ["caller", "workspace"])
def test_every_way_to_provide_memory(workspace: str, io: str, tmp_path: Path) -> None:
    for tool in ("gcc", "make", "qemu-system-i386"):
        require(tool)
    models = [network(tmp_path, "first", WEIGHTS), network(tmp_path, "second", OTHERS)]
    path = crtexport.export(
        models, board="qemu_x86", emit="llvm", workspace=workspace, io=io,  # type: ignore[arg-type]
        output=tmp_path / "p.tar",
    ).path
    sources = crtexport.export(models, emit="c", output=tmp_path / "c.tar").path
    given = inputs(open_package(path), 3)
    wanted = crtexport.simulate_all(sources, given)
    ran = crtexport.run_all(path, given)
    for name, result in ran.items():
        assert [row[0].tobytes() for row in result.outputs] == [
            row["y"].tobytes() for row in wanted[name]
        ]
    one = crtexport.run(path, {"x": given["second/x"]}, model="second")
    assert all(
        np.array_equal(a[0], b[0])
        for a, b in zip(one.outputs, ran["second"].outputs, strict=True)
    )


def test_the_command_runs_all_or_the_chosen_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tool in ("gcc", "make"):
        require(tool)
    models = [network(tmp_path, "first", WEIGHTS), network(tmp_path, "second", OTHERS)]
    path = str(crtexport.export(models, emit="c", output=tmp_path / "p.tar").path)
    assert main(["run", path, "--output", str(tmp_path / "y.npz")]) == 0
    shown = capsys.readouterr().out
    assert shown.index("model first") < shown.index("model second")
    with np.load(tmp_path / "y.npz") as saved:
        assert sorted(saved.files) == ["first/y", "second/y"]
    assert main(["run", path, "--model", "second"]) == 0
    assert "model first" not in capsys.readouterr().out
    with pytest.raises(CrtExportError, match="works on one model; the package has first, second"):
        crtexport.run(path)
