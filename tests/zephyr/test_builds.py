"""Real builds: whenever ZEPHYR_BASE names a tree, the applications are built with it and run.

Toolchains: Zephyr's own, where ZEPHYR_TOOLCHAIN_VARIANT says so; else the compilers of the
distribution, as far as a board can be built with them. ``CRTEXPORT_ZEPHYR_CROSS_X86`` and
``CRTEXPORT_ZEPHYR_CROSS_RISCV`` may hold prefixes of cross compilers for those.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.cli.main import main
from crtexport.firmware.qemu import run_program
from crtexport.firmware.toolchain import end_with_children
from crtexport.firmware.zephyr.runner import BASE, ZephyrTree, check_emulator, find_tree
from crtexport.mlf.npz import load_npz
from crtexport.support.errors import ToolMissingError
from tests.cli.support import DIGITS, DIGITS_IMAGES, DIGITS_LABELS, exported
from tests.helpers import ROOT, SHARED_MODELS, require, unavailable
from tests.integrations.test_libraries import KINDS, package

pytestmark = [pytest.mark.zephyr, pytest.mark.slow]

APP = ROOT / "zephyr_app"
TIMEOUT = 120.0


@dataclass(frozen=True)
class Place:
    """A board of Zephyr's, by its old and new name, and what builds for it."""

    old: str
    new: str
    variant: str

    def name(self, tree: ZephyrTree) -> str:
        return self.new if tree.version >= (3, 7) else self.old


PLACES = (
    Place("native_sim", "native_sim", "host"),
    Place("native_sim_64", "native_sim/native/64", "host"),
    Place("qemu_x86", "qemu_x86/atom", "X86"),
    Place("qemu_cortex_m3", "qemu_cortex_m3/ti_lm3s6965", "gnuarmemb"),
    Place("mps2_an385", "mps2/an385", "gnuarmemb"),
    Place("mps2_an386", "mps2/an386", "gnuarmemb"),
    Place("mps2_an521", "mps2/an521/cpu0", "gnuarmemb"),
    Place("mps3_an547", "mps3/corstone300/an547", "gnuarmemb"),
    Place("qemu_riscv32", "qemu_riscv32/qemu_virt_riscv32", "RISCV"),
)
BY_NAME = {place.old: place for place in PLACES}


@pytest.fixture(scope="session")
def tree() -> ZephyrTree:
    if not os.environ.get(BASE):
        unavailable("zephyr", f"{BASE} names no tree of Zephyr")
    for tool in ("cmake", "ninja", "dtc", "gperf"):
        require(tool)
    return find_tree()


def toolchain(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say in the environment what compiles for ``place``; skip where nothing does."""
    if os.environ.get("ZEPHYR_TOOLCHAIN_VARIANT") == "zephyr":
        return
    if place.variant == "host":
        gcc = require("gcc")
        if place.old == "native_sim" and not compiles_for_32_bits(gcc):
            unavailable(
                "zephyr-native_sim", "gcc has no C library of 32 bits (Debian's libc6-dev-i386)"
            )
        monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "host")
    elif place.variant == "gnuarmemb":
        require("arm-none-eabi-gcc")
        require("qemu-system-arm")
        monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "gnuarmemb")
        monkeypatch.setenv("GNUARMEMB_TOOLCHAIN_PATH", "/usr")
    else:
        prefix = os.environ.get(f"CRTEXPORT_ZEPHYR_CROSS_{place.variant}")
        if not prefix:
            unavailable(
                f"zephyr-{place.old}", f"CRTEXPORT_ZEPHYR_CROSS_{place.variant} names no compilers"
            )
        monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "cross-compile")
        monkeypatch.setenv("CROSS_COMPILE", prefix)


@functools.cache
def compiles_for_32_bits(gcc: str) -> bool:
    """Returns whether headers and libraries of such programs are there."""
    command = (gcc, "-m32", "-x", "c", "-", "-o", "/dev/null")
    program = "#include <stdint.h>\nint main(void) { return 0; }\n"
    return subprocess.run(
        command, input=program, text=True, check=False, capture_output=True
    ).returncode == 0


def build(tree: ZephyrTree, place: Place, source: Path, folder: Path, *options: str) -> str:
    """Configure and build; returns all output. Fails the test with it when that fails."""
    done = configure(tree, place, source, folder, *options)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout + ninja(folder)


def configure(
    tree: ZephyrTree, place: Place, source: Path, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["cmake", "-GNinja", f"-DBOARD={place.name(tree)}",
         f"-DPython3_EXECUTABLE={sys.executable}", f"-DPYTHON_EXECUTABLE={sys.executable}",
         *options, "-S", str(source), "-B", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=tree.path,
    )


def ninja(folder: Path) -> str:
    done = subprocess.run(
        ["ninja", "-C", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def boot(folder: Path) -> str:
    native = folder / "zephyr" / "zephyr.exe"
    command = [str(native)] if native.is_file() else ["ninja", "run"]
    return run_program(command, cwd=folder, timeout=TIMEOUT)[0]


def own_warnings(output: str) -> list[str]:
    """Warnings about the model's or the module's files; those of Zephyr's own are its own."""
    return [
        line for line in output.splitlines()
        if "warning:" in line and any(word in line for word in ("tvmgen", "crtexport", "digits"))
    ]


@pytest.mark.parametrize("backend", ["llvm", "c"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.old)
def test_the_application_reads_all_digits(
    tree: ZephyrTree, place: Place, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain(place, monkeypatch)
    text = build(
        tree, place, APP, tmp_path / "b", f"-DCONFIG_CRTEXPORT_BACKEND_{backend.upper()}=y"
    )
    assert own_warnings(text) == []
    if place.old == "mps2_an386" and tree.version >= (3, 7):
        with pytest.raises(ToolMissingError, match="does not run the board in QEMU"):
            check_emulator(tmp_path / "b", place.old)
        return
    console = boot(tmp_path / "b")
    for index, label in enumerate(np.load(DIGITS_LABELS).tolist()):
        assert f"image {index} shows {label}, predicted {label}" in console
    assert "PASSED" in console
    # What was derived while configuring is what the compile commands say afterwards.
    derived = tmp_path / "again.yaml"
    assert main(["zephyr", "board", str(tmp_path / "b"), "-o", str(derived), "-q"]) == 0
    used = (tmp_path / "b" / "crtexport" / "board.yaml").read_text()
    assert derived.read_text().splitlines()[1:] == used.splitlines()[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_modules_that_build_wrote_pass_in_zephyr(
    tree: ZephyrTree, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME["qemu_cortex_m3"]
    toolchain(place, monkeypatch)
    crtexport.write_library(package(kind), tmp_path / "module", "zephyr")
    text = build(tree, place, tmp_path / "module" / "samples" / "run", tmp_path / "b")
    assert own_warnings(text) == []
    said = []
    with subprocess.Popen(  # main returns there, and QEMU stays
        ["timeout", str(TIMEOUT), "ninja", "run"], cwd=tmp_path / "b",
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
    ) as process:
        for line in process.stdout or ():
            said.append(line.decode().strip())
            if said[-1] in ("PASS", "FAIL"):
                break
        end_with_children(process)
    assert said[-1] == "PASS"


def test_nothing_is_built_anew_unless_the_model_changes(
    tree: ZephyrTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME["mps3_an547"]
    toolchain(place, monkeypatch)
    for file in (*DIGITS.parent.glob("model.*"),):
        target = tmp_path / "docs" / "examples" / "digits" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    source = tmp_path / "zephyr_app"
    subprocess.run(["cp", "-r", str(APP), str(source)], check=True)
    (tmp_path / "crtexport").symlink_to(Path(crtexport.__file__).parent)
    for name in ("templates", "boards", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    folder = tmp_path / "b"
    text = build(tree, place, source, folder, "-DCONFIG_FPU=y")
    assert text.count("Exporting model digits") == 1
    assert "no work to do" in ninja(folder)
    os.utime(tmp_path / "docs" / "examples" / "digits" / "model.json")
    assert ninja(folder).count("Exporting model digits") == 1
    assert "no work to do" in ninja(folder)
    # What the code doesn't depend on changes nothing.
    for setting in ("-DCONFIG_THREAD_NAME=y", "-DCONFIG_MAIN_STACK_SIZE=8192"):
        assert configure(tree, place, source, folder, setting).returncode == 0
        assert "Exporting" not in ninja(folder)
    # Another processor in the same folder of a build: other code, without being asked.
    before = (folder / "crtexport" / "digits.tar").read_bytes()
    done = configure(tree, place, source, folder, "-DCONFIG_FPU=n")
    assert done.returncode == 0
    assert ninja(folder).count("Exporting model digits") == 1
    assert (folder / "crtexport" / "digits.tar").read_bytes() != before
    assert "PASSED" in boot(folder)


@pytest.mark.parametrize(("place", "options"), [
    (BY_NAME["native_sim_64"], ()), (BY_NAME["qemu_cortex_m3"], ()),
    (BY_NAME["mps2_an521"], ("-DOVERLAY_CONFIG=userspace.conf",)),
    (BY_NAME["qemu_x86"], ("-DOVERLAY_CONFIG=userspace.conf",)),
], ids=lambda value: value.old if isinstance(value, Place) else "")
def test_threads_work_queues_and_user_mode_each_have_their_workspace(
    tree: ZephyrTree, place: Place, options: tuple[str, ...], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toolchain(place, monkeypatch)
    build(tree, place, APP / "tests" / "threads", tmp_path / "b", *options)
    console = boot(tmp_path / "b")
    assert "work queue: 12 inferences, 0 wrong" in console
    assert ("user mode: 12 inferences, 0 wrong" in console) == bool(options)
    assert "PASSED" in console


def test_devicetree_chooses_the_memory_of_workspaces(
    tree: ZephyrTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME["mps3_an547"]
    toolchain(place, monkeypatch)
    overlay = tmp_path / "memory.overlay"
    overlay.write_text("/ { chosen { crtexport,workspace = &ddr4; }; };\n")
    build(
        tree, place, APP, tmp_path / "b", f"-DDTC_OVERLAY_FILE={overlay}",
        "-DCONFIG_CRTEXPORT_WORKSPACE_CHOSEN=y",
    )
    listed = subprocess.run(
        ["arm-none-eabi-nm", str(tmp_path / "b" / "zephyr" / "zephyr.elf")],
        capture_output=True, text=True, check=True,
    ).stdout
    assert "60000000 b tvmgen_digits.workspace" in listed
    assert "PASSED" in boot(tmp_path / "b")


def test_the_runner_answers_as_bare_metal_does(
    tree: ZephyrTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME["mps2_an385"]
    toolchain(place, monkeypatch)
    package = exported(tmp_path, board="mps2_an385", emit="llvm")
    images = load_npz(DIGITS_IMAGES)
    under_zephyr = crtexport.run(package, images, runner="zephyr", out_dir=tmp_path / "app")
    bare = crtexport.run(package, images)
    for ours, theirs in zip(under_zephyr.outputs, bare.outputs, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
    assert not under_zephyr.exact
    # A timer that sees an interrupt now and then, beside a count.
    assert under_zephyr.instructions_second == pytest.approx(bare.instructions_second, rel=0.1)
    # What a linked model takes is the same: the report tells it from the kernel.
    assert main(["zephyr", "report", str(tmp_path / "app" / "build"), "--json"]) == 0


FLOATS = """
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>
#include <tvmgen_kws.h>
#include "leave.h"
static float in[TVMGEN_KWS_INPUT_1_ELEMENTS], out[TVMGEN_KWS_IDENTITY_ELEMENTS];
int main(void)
{
    struct tvmgen_kws_inputs inputs = {in};
    struct tvmgen_kws_outputs outputs = {out};
    float sum = 0.0f;
    int status = tvmgen_kws_run(&inputs, &outputs);
    for (int i = 0; i < TVMGEN_KWS_IDENTITY_ELEMENTS; i++) {
        sum += out[i];
    }
    printk("status %d, sum %d\\n", status, (int)(sum * 1000.0f + 0.5f));
    leave(status);
    return 0;
}
"""


@pytest.mark.parametrize("optimize", ["SIZE", "BALANCED"])
@pytest.mark.parametrize("place", ["mps2_an385", "qemu_riscv32"])
def test_what_processors_lack_comes_from_the_compilers_library(
    tree: ZephyrTree, place: str, optimize: str, shared_models: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.zephyr.networks import write_application

    toolchain(BY_NAME[place], monkeypatch)
    source = tmp_path / "app"
    model = f"crtexport_model(TARGET app NAME kws MODEL {shared_models / 'kws_fp32.tflite'})"
    write_application(source, APP, FLOATS, [model])
    build(tree, BY_NAME[place], source, tmp_path / "b", f"-DCONFIG_CRTEXPORT_OPTIMIZE_{optimize}=y")
    assert "status 0, sum 1000" in boot(tmp_path / "b")


def test_a_network_whose_input_stays_in_flash_fits_a_small_board(
    tree: ZephyrTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.zephyr.networks import write_constant

    place = BY_NAME["qemu_cortex_m3"]
    toolchain(place, monkeypatch)
    for arguments in ("", "INPUTS CONST"):
        source, folder = tmp_path / f"app{len(arguments)}", tmp_path / f"b{len(arguments)}"
        write_constant(source, APP, arguments)
        assert configure(tree, place, source, folder).returncode == 0
        done = subprocess.run(
            ["ninja", "-C", str(folder)], capture_output=True, text=True, check=False
        )
        if not arguments:
            assert done.returncode != 0
            assert "INPUTS CONST" in " ".join(done.stdout.split())
            continue
        assert done.returncode == 0, done.stdout[-4000:]
        assert "1 networks exact" in boot(folder)


def test_a_package_for_another_float_abi_is_refused_while_configuring(
    tree: ZephyrTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BY_NAME["qemu_cortex_m3"]
    toolchain(place, monkeypatch)
    package = exported(tmp_path, board="mps2_an386", emit="llvm")
    source = tmp_path / "app"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nlist(APPEND ZEPHYR_EXTRA_MODULES {APP})\n"
        "find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})\nproject(app)\n"
        f"target_sources(app PRIVATE main.c)\n"
        f"crtexport_model(TARGET app NAME digits PACKAGE {package})\n"
    )
    (source / "main.c").write_text("int main(void) { return 0; }\n")
    (source / "prj.conf").write_text("CONFIG_CRTEXPORT=y\n")
    done = configure(tree, place, source, tmp_path / "b")
    assert done.returncode != 0
    assert "another float ABI: hard; this build has soft" in " ".join(done.stdout.split())


def test_four_networks_in_one_image_answer_exactly(
    tree: ZephyrTree, shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.zephyr.networks import write_networks

    place = BY_NAME["mps2_an521"]
    toolchain(place, monkeypatch)
    source = tmp_path / "app"
    write_networks(source, SHARED_MODELS, APP)
    text = build(tree, place, source, tmp_path / "b")
    assert own_warnings(text) == []
    console = boot(tmp_path / "b")
    assert "4 networks exact" in console, console[-2000:]
    listed = subprocess.run(
        ["arm-none-eabi-nm", "-C", str(tmp_path / "b" / "zephyr" / "zephyr.elf")],
        capture_output=True, text=True, check=True,
    ).stdout
    assert not [word for word in ("malloc", "__cxa", "operator new") if word in listed]
    report = _report(tmp_path / "b")
    assert set(report["models"]) == {"ad01", "kws", "resnet8", "vww96"}


def _report(folder: Path) -> dict[str, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "crtexport", "zephyr", "report", str(folder), "--json"],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(crtexport.__file__).parents[1])},
    )
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found
