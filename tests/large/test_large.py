"""Networks with more constants than fit memory: exported, linked every way, run.

By default they have 160 MiB, with the board's threshold for large data below that, and constants
are linked far from the code, so that the same paths run. With ``CRTEXPORT_LARGE=1`` they have
4.5 GiB, which takes half an hour, 16 GiB of memory (for ld.bfd and for files that stay in caches)
and 35 GiB of disk in ``TMPDIR``.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from elftools.elf.elffile import ELFFile

import crtexport
from crtexport.artifact.byte_sources import opened
from crtexport.mlf.reader import Package, open_package
from crtexport.support.resources import boards_dir
from tests.helpers import ROOT, require, unavailable
from tests.large.models import Large, Table

FULL = os.environ.get("CRTEXPORT_LARGE") == "1"
GIB = 1 << 30
SIZE = int(4.5 * GIB) if FULL else 160 << 20
NEEDED_DISK, NEEDED_MEMORY = (35 * GIB, 16 * GIB) if FULL else (3 * GIB, 2 * GIB)
THRESHOLD = "1GiB" if FULL else "64MiB"
MOST_MEMORY, INSPECTING = 200, 120  # MB
WIDTH = 4096
PLACES = (0.0, 0.2, 2 / 4.5, 3.1 / 4.5, 4 / 4.5, 1.0)
"""Rows that are looked up, in parts of all constants: before and past 2, 3.1 and 4 GiB."""

FAR = "0x300000000"
LINKERS = {"bfd": "ld.bfd", "gold": "ld.gold", "mold": "mold", "lld": "ld.lld-22"}

pytestmark = pytest.mark.slow


def _table(name: str, seed: int, size: float) -> Table:
    return Table(name, seed, int(SIZE * size) // WIDTH, WIDTH)


MODELS = {
    "one constant": Large((_table("t0", 1, 1),)),
    "many constants": Large(
        (_table("t0", 1, 0.37), _table("t1", 2, 0.3), _table("t2", 3, 0.17), _table("t3", 4, 0.1)),
        dense=_table("dense", 5, 0.06),
    ),
}


@dataclass(frozen=True)
class Case:
    """A network on disk and what was exported of it."""

    model: Large
    folder: Path
    board: Path
    memory: float  # MB, at most, while exporting
    seconds: float
    copying: float  # seconds that cp took for the same bytes

    @property
    def package(self) -> Path:
        return self.folder / "large.tar"

    @cached_property
    def opened(self) -> Package:
        return open_package(self.package, verify=False)

    @cached_property
    def inputs(self) -> dict[str, npt.NDArray[np.generic]]:
        """Rows before and behind each of the places, and the last one."""
        given: dict[str, npt.NDArray[np.generic]] = {}
        for number, table in enumerate(self.model.tables):
            rows = [int(place * table.rows) for place in PLACES[1:]]
            picked = [0, *rows, rows[1] - 1, rows[3] - 1]
            given[f"x{number}"] = np.array(picked, np.int32).clip(0, table.rows - 1)
        if self.model.dense is not None:
            values = np.random.default_rng(3).integers(-128, 128, (1, WIDTH))
            given["given"] = values.astype(np.int8)
        return given

    def check(self, outputs: dict[str, npt.NDArray[np.generic]]) -> None:
        """Compares outputs with what the constants' definition says."""
        for number, table in enumerate(self.model.tables):
            rows = self.inputs[f"x{number}"].tolist()
            expected = np.stack([table.row(row) for row in rows])
            np.testing.assert_array_equal(outputs[f"y{number}"], expected)
        dense = self.model.dense
        if dense is not None:
            x = self.inputs["given"][0].astype(np.int64) - 3
            for unit in (0, dense.rows // 2, dense.rows - 1):
                real = int(x @ dense.row(unit).astype(np.int64)) * 0.25 / 4096.0
                # Halves are rounded away from zero, after a product that is rounded itself.
                assert abs(int(outputs["sums"][0, unit]) - np.clip(real, -128, 127)) <= 0.5

    def program_answers(self, program: Path, **environment: str) -> None:
        """Runs a program of application.c and checks what it answers."""
        given = b"".join(self.inputs[t.name].tobytes() for t in self.opened.inputs)
        done = subprocess.run(
            [program], input=given, capture_output=True, check=True,
            env={**os.environ, **environment},
        )
        outputs, at = {}, 0
        for tensor in self.opened.outputs:
            piece = done.stdout[at : at + tensor.nbytes]
            outputs[tensor.name] = np.frombuffer(piece, np.int8).reshape(tensor.shape or ())
            at += tensor.nbytes
        assert at == len(done.stdout)
        self.check(outputs)

    def unpacked(self) -> Path:
        folder = self.folder / "unpacked"
        if not folder.exists():
            self.opened.extract(folder)
        return folder

    def compile_command(self, compiler: str) -> list[str]:
        folder = self.unpacked()
        sizes = (
            ",".join(str(tensor.nbytes) for tensor in tensors)
            for tensors in (self.opened.inputs, self.opened.outputs)
        )
        macros = zip(("INPUT_SIZES", "OUTPUT_SIZES"), sizes, strict=True)
        return [
            require(compiler), "-O1", *(f"-D{name}={values}" for name, values in macros),
            f"-I{folder / 'codegen/host/include'}", f"-I{folder / 'runtime/include'}",
        ]

    def objects(self) -> list[Path]:
        return sorted((self.unpacked() / "codegen/host/lib").iterdir())


@pytest.fixture(scope="module", params=MODELS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    folder = tmp_path_factory.mktemp("large")
    check_room(folder, NEEDED_DISK, NEEDED_MEMORY)
    model = MODELS[request.param]
    path = model.write(folder)
    board = folder / "host.yaml"
    data = yaml.safe_load((boards_dir() / "host.yaml").read_text(encoding="utf-8"))
    board.write_text(yaml.safe_dump({**data, "large_data_threshold": THRESHOLD}))
    copy = folder / "copy"
    os.sync()
    start = time.monotonic()
    command = ["cp", "--sparse=never", "--reflink=never", folder / "weights.safetensors", copy]
    subprocess.run(command, check=True)
    subprocess.run(["sync", copy], check=True)  # as a package is complete only on the disk
    copying = time.monotonic() - start
    copy.unlink()
    memory, seconds = export(path, board, folder / "large.tar")
    yield Case(model, folder, board, memory, seconds, copying)
    shutil.rmtree(folder)


def check_room(folder: Path, needed_disk: int, needed_memory: int) -> None:
    """Skips or fails the test where there are fewer bytes of disk or memory."""
    disk = shutil.disk_usage(folder).free
    available = re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())
    memory = int(available[1]) << 10 if available else 0
    if disk < needed_disk or memory < needed_memory:
        unavailable(
            "room", f"{disk >> 30} GiB of disk and {memory >> 30} GiB of memory are free; needed "
            f"are {needed_disk >> 30} and {needed_memory >> 30}"
        )


PRINT_PEAK = (
    "status = Path('/proc/self/status').read_text()\n"
    "print(int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) >> 10)\n"
)
"""Prints the process's peak memory in MB: its own, not that of the process that started it."""


def export(model: Path, board: Path, package: Path, *options: str) -> tuple[float, float]:
    """Exports in a process of its own; returns its peak memory in MB, and seconds."""
    command = [
        sys.executable, "-m", "crtexport", str(model), "--board", str(board), "-o", str(package),
        "-q", *options,
    ]
    # A process inherits the peak of the one that started it: these tests' own may be large.
    watch = (
        "import os, sys\n"
        "pid = os.posix_spawn(sys.executable, sys.argv[1:], os.environ)\n"
        "_, status, used = os.wait4(pid, 0)\n"
        "print(used.ru_maxrss)\n"
        "sys.exit(os.waitstatus_to_exitcode(status))\n"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", watch, *command], check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return int(done.stdout.split()[-1]) / 1024, time.monotonic() - start


def test_export_needs_little_memory_and_time(case: Case) -> None:
    sys.stdout.write(
        f"{case.model.nbytes} bytes: {case.memory:.0f} MB, {case.seconds:.1f} s; "
        f"cp takes {case.copying:.1f} s\n"
    )
    assert case.memory < MOST_MEMORY
    if FULL:
        assert case.seconds < 2 * case.copying


def test_constants_are_in_large_sections(case: Case) -> None:
    section = case.opened.section
    assert section is not None
    sections = section.objects["large_constants.o"].sections
    assert sections[".lrodata"] >= case.model.nbytes
    assert sections[".rodata"] == 0
    assert section.modules["large"].constants_object == "large_constants.o"
    assert case.opened.size("parameters/large.params") == 32


def test_no_code_names_them(case: Case) -> None:
    """Linkers would take it for near enough; all go through pointers that are near."""
    names = set()
    for name, blob in case.opened.objects.items():
        if name != "large_constants.o":
            with opened(blob) as stream:
                symtab = ELFFile(stream).get_section_by_name(".symtab")
                names |= {symbol.name for symbol in symtab.iter_symbols()}
    section = case.opened.section
    assert section is not None
    hidden = set(section.objects["large_constants.o"].hidden)
    stored = {name for name in hidden if name.endswith(".stored")}
    assert not names & stored
    assert {name.removesuffix(".stored") for name in stored} == hidden - stored


def test_simulation_reads_what_it_uses_only(case: Case) -> None:
    code = (
        "import re, sys, numpy, crtexport; from pathlib import Path\n"
        "given = dict(numpy.load(sys.argv[2]))\n"
        "(outputs,) = crtexport.simulate(sys.argv[1], given)\n"
        "numpy.savez(sys.argv[3], **outputs)\n"
        f"{PRINT_PEAK}"
    )
    given, answer = case.folder / "given.npz", case.folder / "answer.npz"
    np.savez(given, **case.inputs)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", code, case.package, given, answer], check=True,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with np.load(answer) as outputs:
        case.check(dict(outputs))
    dense = case.model.dense.nbytes >> 20 if case.model.dense is not None else 0
    assert int(done.stdout) - dense < 250


@pytest.mark.parametrize(
    ("name", "options", "shown"),
    [
        ("large.tar", (), "large_constants.o"),
        ("large.json", ("--stage", "c"), "tvmgen_large_constant_table"),
        ("large.json", ("--stage", "llvm"), "define "),
    ],
)
def test_inspecting_holds_no_constants(
    case: Case, name: str, options: tuple[str, ...], shown: str
) -> None:
    code = (
        "import re, sys; from pathlib import Path; from crtexport.cli.main import main\n"
        "assert main(['inspect', *sys.argv[1:]]) == 0\n"
        f"{PRINT_PEAK}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, case.folder / name, *options], check=True,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert shown in done.stdout
    assert int(done.stdout.split()[-1]) < INSPECTING


def test_two_exports_are_the_same_bytes(case: Case) -> None:
    again = case.folder / "again.tar"
    export(case.folder / "large.json", case.board, again)
    same = filecmp.cmp(case.package, again, shallow=False)
    again.unlink()
    assert same


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("linker", LINKERS)
def test_linked_into_an_executable(case: Case, linker: str, compiler: str) -> None:
    if compiler == "clang" and linker != "mold":
        pytest.skip("clang's and gcc's objects are told apart with one linker")
    require(LINKERS[linker])
    program = case.folder / "program"
    far = ["-Wl,--section-start=.lrodata=" + FAR] if linker in ("bfd", "gold") and not FULL else []
    command = [
        *case.compile_command(compiler), "-fPIE", "-pie", *_use(linker, case.folder),
        Path(__file__).with_name("application.c"), *case.objects(), *far, "-o", program,
    ]
    subprocess.run(command, check=True)
    case.program_answers(program)
    program.unlink()


@pytest.mark.parametrize("linker", LINKERS)
def test_linked_into_a_shared_library(case: Case, linker: str) -> None:
    require(LINKERS[linker])
    library, program = case.folder / "liblarge.so", case.folder / "program"
    gcc, *options = case.compile_command("gcc")
    use = _use(linker, case.folder)
    subprocess.run([gcc, "-shared", *use, *case.objects(), "-o", library], check=True)
    subprocess.run(
        [
            gcc, *options, Path(__file__).with_name("application.c"), f"-L{case.folder}",
            "-llarge", "-o", program,
        ],
        check=True,
    )
    case.program_answers(program, LD_LIBRARY_PATH=str(case.folder))
    library.unlink()


def _use(linker: str, folder: Path) -> list[str]:
    """Returns what makes gcc and clang use a linker; newer ones have other names."""
    if linker != "lld":
        return [f"-fuse-ld={linker}"]
    tools = folder / "tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "ld").symlink_to(require(LINKERS["lld"]))
    return [f"-B{tools}"]


def test_firmware_for_this_computer_runs(case: Case) -> None:
    result = crtexport.run(case.package, case.inputs, timeout=600)
    (row,) = result.outputs
    case.check({t.name: a for t, a in zip(case.opened.outputs, row, strict=True)})


def test_c_sources_find_constants_by_their_table(case: Case) -> None:
    package = case.folder / "c.tar"
    memory, _ = export(case.folder / "large.json", case.board, package, "--emit", "c")
    assert memory < MOST_MEMORY
    (outputs,) = crtexport.simulate(package, case.inputs)
    case.check(outputs)
    result = crtexport.run(package, case.inputs, timeout=600)
    case.check({t.name: a for t, a in zip(case.opened.outputs, result.outputs[0], strict=True)})
    package.unlink()


def test_the_same_constants_in_ordinary_sections_do_not_link(case: Case) -> None:
    require(LINKERS["bfd"])
    package = case.folder / "near.tar"
    export(case.folder / "large.json", case.board, package, "--large-data", "never")
    folder = case.folder / "near"
    open_package(package, verify=False).extract(folder)
    package.unlink()
    far = [] if FULL else ["-Wl,--section-start=.rodata=" + FAR]
    command = [
        *case.compile_command("gcc"), "-fPIE", "-pie", *_use("bfd", case.folder), *far,
        Path(__file__).with_name("application.c"),
        *sorted((folder / "codegen/host/lib").iterdir()), "-o", case.folder / "program",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shutil.rmtree(folder)
    assert done.returncode != 0
    assert re.search("relocation truncated to fit|out of range", done.stderr), done.stderr


@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", "qemu_riscv32"])
def test_boards_that_are_too_small_refuse_without_work(case: Case, board: str) -> None:
    code = (
        "import re, sys, crtexport; from pathlib import Path\n"
        "try:\n    crtexport.export(sys.argv[1], board=sys.argv[2], output=sys.argv[3])\n"
        "except crtexport.support.errors.CrtExportError as error:\n    print(error)\n"
        f"{PRINT_PEAK}"
    )
    package = case.folder / "small.tar"
    done = subprocess.run(
        [sys.executable, "-c", code, case.folder / "large.json", board, package], check=True,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert re.search(r"does not fit: [\d,]+ bytes \([\d.]+ [MG]iB\) too much", done.stdout)
    assert int(done.stdout.split()[-1]) < MOST_MEMORY
    assert not package.exists()


def test_terminals_see_a_bar_and_pipes_nothing(case: Case) -> None:
    package = case.folder / "seen.tar"
    command = [
        sys.executable, "-m", "crtexport", str(case.folder / "large.json"), "--board", "host",
        "-o", str(package),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    terminal, end = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=end, env=environment) as run:
        os.close(end)
        shown = b""
        with contextlib.suppress(OSError):  # how the end of a terminal's output looks
            while piece := os.read(terminal, 1 << 16):
                shown += piece
    os.close(terminal)
    assert run.returncode == 0
    assert re.search(rb"package.*\d+\.\d/\d+\.\d [MG]iB", shown)
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert done.stderr == b""
    package.unlink()
