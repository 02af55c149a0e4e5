"""Networks that Arm's Vela compiled: their layers for an Ethos-U run through the driver's hook.

The NPU is a stand-in that checks all that Arm's driver checks, spoils the arena, and computes the
same layers as generated for a processor: results then equal the reference bit for bit, unless a
tensor lay where commands may write.
"""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError
from tests.devices.vela_support import compiled, launches, stand_in
from tests.helpers import fnv1a, require, shared_model, standard_input, tflm_outputs
from tests.tflite_builder import ModelBuilder, run_reference

U55 = "ethos-u55-128"
RNG = np.random.default_rng(11)
KERNELS = [RNG.integers(-90, 90, (8, 3, 3, 8), np.int8) for _ in range(2)]
BIASES = RNG.integers(-900, 900, (2, 8), np.int32)
IMAGE = RNG.integers(-128, 128, (1, 6, 6, 8), np.int8)


def _image(model: ModelBuilder, name: str, scale: float = 0.04) -> int:
    return model.tensor(name, (1, 6, 6, 8), "int8", scale=scale, zero_point=3)


def _conv(model: ModelBuilder, x: int, y: int, number: int, scale: float = 0.04) -> None:
    weights = model.tensor(
        f"weights{number}", (8, 3, 3, 8), "int8", scale=[0.002] * 8, axis=0, data=KERNELS[number]
    )
    bias = model.tensor(
        f"bias{number}", (8,), "int32", scale=[0.002 * scale] * 8, axis=0, data=BIASES[number]
    )
    model.op("CONV_2D", [x, weights, bias], [y], padding="SAME", stride=(1, 1))


def _first(model: ModelBuilder, x: int) -> int:
    a = _image(model, "a")
    _conv(model, x, a, 0)
    return a


def _norm(model: ModelBuilder, a: int) -> int:
    b = model.tensor("b", (1, 6, 6, 8), "int8", scale=1 / 128, zero_point=0)
    model.op("L2_NORMALIZATION", [a], [b])
    return b


def _second(model: ModelBuilder, a: int, b: int) -> int:
    """The first part's result is needed again, long after the processor had its turn."""
    c, y = _image(model, "c", 0.01), _image(model, "y", 0.06)
    _conv(model, b, c, 1, 1 / 128)
    model.op("ADD", [c, a], [y])
    return y


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A network of two parts for an NPU around an operator that no Ethos-U has; and the parts."""
    folder = tmp_path_factory.mktemp("mixed")
    whole, first, second = ModelBuilder(), ModelBuilder(), ModelBuilder()
    x = _image(whole, "x")
    a = _first(whole, x)
    y = _second(whole, a, _norm(whole, a))
    files = [(whole, [x], [y])]
    x = _image(first, "x")
    files.append((first, [x], [_first(first, x)]))
    b = second.tensor("b", (1, 6, 6, 8), "int8", scale=1 / 128, zero_point=0)
    a = _image(second, "a")
    files.append((second, [a, b], [_second(second, a, b)]))
    paths = []
    for number, (model, inputs, outputs) in enumerate(files):
        paths.append(folder / f"model{number}.tflite")
        paths[-1].write_bytes(model.build(inputs, outputs))
    return paths[0], paths[1:]


@pytest.mark.parametrize(("emit", "options"), [
    ("c", {}), ("llvm", {}), ("llvm", {"workspace": "caller"}), ("c", {"io": "workspace"}),
])
def test_parts_for_the_npu_run_between_operators_of_the_processor(
    emit: Any, options: dict[str, Any], mixed: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    require("gcc")
    path, parts = mixed
    model = compiled(path)
    assert len(launches(model)) == 2
    package = crtexport.export(
        model, emit=emit, output=tmp_path / "p.tar", accelerators=[U55], **options
    ).path
    (outputs,) = crtexport.simulate(
        package, {"x": IMAGE}, device_code=stand_in(model, parts, tmp_path)
    )
    (wanted,) = run_reference(path.read_bytes(), IMAGE)
    np.testing.assert_array_equal(outputs["y"], wanted)


def test_an_arena_too_large_for_the_first_memory_lies_in_the_next(
    mixed: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    require("gcc")
    path, parts = mixed
    model = compiled(path)
    exported = crtexport.export(
        model, board="mps2_an386", emit="c", output=tmp_path / "p.tar", accelerators=[U55],
        pools=(("ram", 400), ("flash", 1 << 20)),
    )
    assert exported.plan.pools[0] <= 400 < min(launch.sizes[1] for launch in launches(model))
    (outputs,) = crtexport.simulate(
        exported.path, {"x": IMAGE}, device_code=stand_in(model, parts, tmp_path)
    )
    (wanted,) = run_reference(path.read_bytes(), IMAGE)
    np.testing.assert_array_equal(outputs["y"], wanted)


def _accelerated(name: str, *options: str) -> Path:
    return compiled(shared_model(name), U55, *options)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "emit"), [("kws_int8", "c"), ("kws_int8", "llvm"), ("vww96_int8", "llvm")]
)
def test_whole_networks_run_on_a_board_with_an_npu(name: str, emit: Any, tmp_path: Path) -> None:
    board = load_board("mps3_an547")
    require(board.toolchain.compiler[0])
    require(board.runner.command[0])  # type: ignore[union-attr]
    model = _accelerated(name)
    exported = crtexport.export(model, board=board, emit=emit, output=tmp_path / "p.tar")
    (launch,) = launches(model)
    arena = launch.sizes[1]
    assert exported.sizes["workspace"] == arena, "Vela's arena is all that the network needs"
    (given,) = open_package(exported.path).inputs
    assert given.shape is not None
    driver = stand_in(model, [shared_model(name)], tmp_path)
    ((output,),) = crtexport.run(
        exported.path, {given.name: standard_input(given.shape)}, device_code=driver
    ).outputs
    assert fnv1a(output.tobytes()) == tflm_outputs()[name]["fnv1a"]


def test_firmware_is_built_with_a_driver(tmp_path: Path) -> None:
    require(load_board("mps3_an547").toolchain.compiler[0])
    model = _accelerated("kws_int8")
    package = crtexport.export(
        model, board="mps3_an547", emit="c", output=tmp_path / "p.tar"
    ).path
    with pytest.raises(CrtExportError, match="an Ethos-U, which is not here"):
        crtexport.build(package, tmp_path / "without")
    driver = stand_in(model, [shared_model("kws_int8")], tmp_path)
    built = crtexport.build(package, tmp_path / "with", device_code=driver)
    assert "TVMEthosULaunch" in {symbol.name for symbol in built.sections.symbols}


@pytest.mark.parametrize(
    ("accelerator", "log2_macs", "fast", "options"),
    [
        ("ethos-u55-64", 6, 0, ("--debug-force-legacy-core",)),
        ("ethos-u65-256", 8, 496, (
            "--config", "Arm/vela.ini", "--system-config", "Ethos_U65_High_End",
            "--memory-mode", "Dedicated_Sram_256KB",
        )),
        ("ethos-u85-256", 8, 496, ()),
    ],
)
def test_a_fast_memory_is_apart_where_commands_use_one(
    accelerator: str, log2_macs: int, fast: int, options: tuple[str, ...], tmp_path: Path
) -> None:
    require("gcc")
    source = shared_model("kws_int8")
    model = compiled(source, accelerator, *options)
    (launch,) = launches(model)
    assert launch.apart, "tensors of their own in the file"
    exported = crtexport.export(
        model, emit="c", output=tmp_path / "p.tar", accelerators=[accelerator]
    )
    together = fast + launch.sizes[2] if fast else launch.sizes[1]
    assert exported.sizes["workspace"] == together
    (outputs,) = crtexport.simulate(
        exported.path, {"input_1": standard_input((1, 49, 10, 1))},
        device_code=stand_in(model, [source], tmp_path, log2_macs=log2_macs, fast=fast),
    )
    assert fnv1a(outputs["Identity"].tobytes()) == tflm_outputs()["kws_int8"]["fnv1a"]


def test_nothing_is_copied_that_can_lie_in_the_arena(
    mixed: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    """With inputs and outputs in the workspace all copies become views."""
    model = compiled(mixed[0])
    exported = crtexport.export(
        model, emit="c", io="workspace", output=tmp_path / "p.tar", accelerators=[U55]
    )
    calls = [call.symbol for call in exported.artifact.calls]  # type: ignore[union-attr]
    assert len(calls) == 3, calls


DRIVER = """
#include <stddef.h>
#include <stdint.h>
struct ethosu_driver;
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *drv);
int ethosu_invoke_v3(
    struct ethosu_driver *drv, const void *custom_data_ptr, const int custom_data_size,
    uint64_t *const base_addr, const size_t *base_addr_size, const int num_base_addr,
    void *user_arg);
"""


@pytest.mark.parametrize("compiler", ["gcc", "arm-none-eabi-gcc", "clang"])
def test_the_header_for_arms_driver_has_the_functions_that_generated_code_calls(
    compiler: str, tmp_path: Path
) -> None:
    package = crtexport.export(
        _accelerated("kws_int8"), emit="c", output=tmp_path / "p.tar", accelerators=[U55]
    ).path
    opened = open_package(package)
    opened.extract(tmp_path)
    include = [f"-I{tmp_path / 'codegen/host/include'}", f"-I{tmp_path / 'runtime/include'}"]
    (source,) = (n for n in opened.sources if n.endswith("lib0.c"))
    unit = tmp_path / "unit.c"
    unit.write_text(
        f'{DRIVER}\n#define CRT_ETHOSU_IMPLEMENTATION\n#include <crt_ethosu.h>\n'
        f'#include "codegen/host/src/{source}"\n'
    )
    subprocess.run(
        [require(compiler), "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wcast-qual",
         "-Werror", *include, "-c", unit, "-o", tmp_path / "unit.o"],
        check=True,
    )


def test_nothing_runs_without_an_npu(tmp_path: Path) -> None:
    package = crtexport.export(
        _accelerated("kws_int8"), emit="c", output=tmp_path / "p.tar", accelerators=[U55]
    ).path
    for act in (crtexport.simulate, crtexport.run):
        with pytest.raises(CrtExportError, match="runs on an Ethos-U, which is not here") as caught:
            act(package)
        assert "--device-code" in str(caught.value)
        with pytest.raises(CrtExportError, match="code for devices is C source"):
            act(package, device_code=[tmp_path / "npu.txt"])
        with pytest.raises(CrtExportError, match="can't be read"):
            act(package, device_code=[tmp_path / "npu.c"])


def _config(content: bytes, word: int) -> bytes:
    """The payload with another word for what it was made for."""
    at = content.index(b"COP1") + 8
    return content[:at] + word.to_bytes(4, "little") + content[at + 4 :]


def _longer(content: bytes) -> bytes:
    """The payload with one more command word promised than there is; Vela's versions differ in
    how many there are."""
    at = content.index(b"COP1")
    while content[at : at + 2] != b"\x02\x00":
        at += 4
    count = int.from_bytes(content[at + 2 : at + 4], "little") + 1
    return content[: at + 2] + count.to_bytes(2, "little") + content[at + 4 :]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda b: b.replace(b"COP1", b"COP2"), "begins with b'COP2'.*--cop-format COP1"),
        (lambda b: b.replace(b"OfflineMemoryAllocation", b"OfflineMemoryAllocatiom"),
         "doesn't say where in the arena 'input_1' lies"),
        (lambda b: _config(b, 0x50000007), "for the unknown product 5"),
        (lambda b: b.replace(b"COP1\x01", b"COP1\x09"), "the unknown driver action 9"),
        (_longer, "truncated, or lacks"),
        (lambda b: b.replace(struct.pack("<8i", 0, 1, 5, -1, -1, 0, 0, 0),
                             struct.pack("<8i", 0, 1, 5, -1, -1, 0, 1 << 20, 0)),
         "'input_1' lies at 1048576, outside of the arena"),
        (lambda b: b.replace(struct.pack("<8i", 0, 1, 5, -1, -1, 0, 0, 0),
                             struct.pack("<8i", 0, 1, 5, -1, -1, 0, 0, 8)),
         "'Identity' lies at byte 8 of the arena, no multiple of 16"),
        (lambda b: b.replace(struct.pack("<8i", 0, 1, 5, -1, -1, 0, 0, 0),
                             struct.pack("<8i", 0, 1, 5, -1, -1, 0, 22176, 0)),
         "'input_1'.*overlap others, or aren't aligned in the arena of 22192"),
        (lambda b: b.replace(struct.pack("<3i", 0, 1, 5), struct.pack("<3i", 0, 1, 6)),
         "5 offsets for 6 tensors"),
    ],
)
def test_damaged_operators_are_refused(damage: Any, problem: str, tmp_path: Path) -> None:
    content = _accelerated("kws_int8").read_bytes()
    broken = damage(content)
    assert broken != content
    path = tmp_path / "model.tflite"
    path.write_bytes(broken)
    with pytest.raises(CrtExportError) as caught:
        crtexport.export(path, output=tmp_path / "p.tar")
    assert re.search(problem, str(caught.value), re.S), caught.value
    assert not (tmp_path / "p.tar").exists()
