"""Integer networks on 32-bit x86 run with the floating-point unit switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from crtexport.firmware.board import load_board
from crtexport.firmware.frame import Frame, parse_frames
from crtexport.firmware.package import board_from_package, parts_from_package
from crtexport.firmware.parts import FirmwareParts
from crtexport.firmware.project import ELF, write_inputs, write_project
from crtexport.firmware.qemu import run_qemu
from crtexport.firmware.samples import pack_samples
from crtexport.firmware.sections import read_sections
from crtexport.firmware.toolchain import run_tool
from crtexport.mlf.reader import open_package
from crtexport.pipeline import driver
from crtexport.support.errors import RunFailedError
from tests.firmware.handmade import toy_inputs, toy_parts
from tests.helpers import fnv1a, require, shared_model, standard_input, tflm_outputs

BOARD = load_board("qemu_x86")


def run_without_fpu(parts: FirmwareParts, sample: bytes, folder: Path) -> Frame:
    """As the runner does it, but every instruction of the x87 raises an exception (CR0.EM)."""
    for tool in ("gcc", "make", "qemu-system-i386"):
        require(tool)
    write_project(parts, BOARD, folder)
    start = folder / "firmware" / "start.S"
    text = start.read_text()
    assert "and $~0x0c, %eax" in text
    assert "    fninit\n" in text
    start.write_text(text.replace("and $~0x0c, %eax", "or $4, %eax").replace("    fninit\n", ""))
    write_inputs(folder, [sample])
    run_tool(["make", "-s"], cwd=folder, what="building")
    console = run_qemu(BOARD, folder / ELF, timeout=60).console
    sizes = tuple(part.nbytes for part in parts.outputs)
    return parse_frames(console, [sizes], read_sections(folder / ELF, BOARD))[0]


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize("network", ["kws_int8", "ad01_int8"])
def test_integer_networks_never_touch_the_fpu(
    network: str, emit: driver.Emit, tmp_path: Path
) -> None:
    path = tmp_path / "model.tar"
    driver.export(shared_model(network), board=BOARD, emit=emit, output=path)
    package = open_package(path)
    assert board_from_package(package) == BOARD
    parts = parts_from_package(package)
    sample = pack_samples(parts, [[standard_input(parts.inputs[0].shape)]])[0]
    frame = run_without_fpu(parts, sample, tmp_path / "project")
    assert fnv1a(frame.outputs[0][0]) == tflm_outputs()[network]["fnv1a"]


@pytest.mark.qemu
def test_the_switched_off_fpu_is_noticed(tmp_path: Path) -> None:
    parts = toy_parts()
    sample = pack_samples(parts, toy_inputs(1))[0]
    with pytest.raises(RunFailedError, match=r"exception 0x7\) at .*tvmgen_toy_run"):
        run_without_fpu(parts, sample, tmp_path)
