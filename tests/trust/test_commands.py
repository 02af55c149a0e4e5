"""No package starts programs here: not by its board, nor by any of its texts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crtexport
from crtexport.cli.main import main
from crtexport.firmware.board import load_board
from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.board_schema import Word
from crtexport.firmware.package import parts_from_package
from crtexport.firmware.parts import FirmwareParts
from crtexport.firmware.project import write_project
from crtexport.firmware.zephyr.application import write_application
from crtexport.mlf.reader import open_package
from crtexport.support.errors import CrtExportError
from tests.cli.support import DIGITS, exported
from tests.helpers import require
from tests.trust.repack import METADATA, Json, Place, put, repacked, texts, with_board

HOSTILE = (
    "$(shell touch {0})", "${{shell touch {0}}}", "$$(touch {0})", "`touch {0}`", "; touch {0} ;",
    "& touch {0} &", "| touch {0}", "x\nall:\n\ttouch {0}\n", "x\\", "x\\\\# touch {0}",
    "' ; touch {0} ; '", '" ; touch {0} ; "', 'x") execute_process(COMMAND touch {0}) #',
    "*/ _Pragma(\"{0}\") /*", "> {0}", "\x1b]0;{0}\x07", "x\u2028touch {0}",
)


def boards() -> list[tuple[str, Json]]:
    """The data of boards that together have every key with a text."""
    found = []
    for name in ("mps2_an386", "qemu_x86", "alif_e7_hp", "host_vnni", "qemu_riscv32"):
        data = load_board(name).to_data() | {"accelerators": ["cmsis-nn"]}
        data["zephyr"] = {"board": "a/b", "legacy": "a_b"}
        found.append((name, data))
    return found


def _places() -> list[tuple[str, Place]]:
    """Every key with a text once, with a board that has it."""
    found: dict[Place, tuple[str, Place]] = {}
    for name, data in boards():
        for place in texts(data):
            found.setdefault(tuple(p for p in place if isinstance(p, str)), (name, place))
    return list(found.values())


PLACES = _places()


def test_the_boards_have_every_key_with_text() -> None:
    keys = {tuple(part for part in place if isinstance(part, str)) for _, place in PLACES}
    assert {("cpu", "triple"), ("cpu", "cflags"), ("toolchain", "compiler"), ("runner", "reason"),
            ("toolchain", "ldflags"), ("toolchain", "libraries"), ("runner", "command"),
            ("npu", "system_config"), ("zephyr", "legacy"), ("placement", "spill"),
            ("llvm_options",), ("accelerators",), ("description",)} <= keys


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> FirmwareParts:
    return parts_from_package(open_package(exported(tmp_path_factory.mktemp("parts"))))


@pytest.mark.parametrize("key", sorted({str(place[0]) for _, place in PLACES}))
def test_no_text_of_a_board_executes_anything(
    key: str, parts: FirmwareParts, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    accepted = 0
    for name, place in PLACES:
        if place[0] != key:
            continue
        data = dict(boards())[name]
        for text in HOSTILE:
            copy = json.loads(json.dumps(data))
            put(copy, place, text.format(canary))
            try:
                board = board_from_data(copy)
            except CrtExportError:
                continue
            accepted += 1
            folder = tmp_path / f"p{accepted}"
            write_project(parts, board, folder)
            subprocess.run(["make", "-n"], cwd=folder, check=False, capture_output=True)
            shutil.rmtree(folder)
            assert not canary.exists(), (name, place, text)
    # What people read may have any text in one line; nothing else takes any of these.
    assert (accepted > 0) == (key in ("description", "runner", "flashing"))


WORDS = st.lists(st.from_regex(Word.__metadata__[0].pattern, fullmatch=True), min_size=1)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS)
def test_make_gives_the_compiler_the_words_that_the_board_has(
    parts: FirmwareParts, words: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spy = folder / "spy.py"
        spy.write_text("import json, sys; json.dump(sys.argv[1:], open('words.json', 'w'))\n")
        board = load_board("host")
        data = board.to_data()
        data["toolchain"] |= {"compiler": [sys.executable, str(spy), *words]}
        data["cpu"]["cflags"] = []
        write_project(parts, board_from_data(data), folder / "p")
        subprocess.run(
            ["make", "-s", "build/firmware/crt_frame.o"], cwd=folder / "p", check=True,
            capture_output=True,
        )
        told = json.loads((folder / "p" / "words.json").read_text())
        assert told[: len(words)] == words


def evil_board(package: Path, folder: Path, name: str = "mine") -> tuple[Path, Path, str]:
    """A package whose board's compiler leaves a canary, the canary, and the command."""
    script, canary = folder / "evil.sh", folder / "canary"
    script.write_text(f"#!/bin/sh\ntouch {canary}\nexit 1\n")
    script.chmod(0o755)

    def change(data: Json) -> None:
        data["name"] = name
        data["toolchain"]["compiler"] = [str(script), "--really"]

    made = with_board(package, folder / f"{name}.tar", change)

    def rename(data: Json) -> None:
        data["crtexport"]["board"]["name"] = name

    return repacked(made, folder / f"{name}-2.tar", metadata=rename), canary, f"{script} --really"


def test_a_toolchain_of_the_package_runs_only_when_it_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, canary, command = evil_board(exported(tmp_path), tmp_path)
    for verb in (["run", str(package)], ["run", str(package), "--runner", "zephyr"]):
        assert main(verb) == 2
        said = capsys.readouterr().err
        assert "there is no board 'mine'" in said
        assert command in said
        assert "--trust-package" in said
        assert "--board FILE" in said
    with pytest.raises(CrtExportError, match="there is no board 'mine'"):
        crtexport.build(package, tmp_path / "firmware")
    assert not canary.exists()
    assert main(["run", str(package), "--trust-package"]) == 1
    assert canary.exists()


def test_the_installed_board_decides_what_is_started(tmp_path: Path) -> None:
    package, canary, _ = evil_board(exported(tmp_path), tmp_path, "host")
    with pytest.raises(CrtExportError, match="was not exported on this computer"):
        crtexport.run(package)
    crtexport.build(package, tmp_path / "firmware")
    assert not canary.exists()


def test_a_board_of_a_file_is_named_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "mine.yaml"
    board.write_text("name: mine\ndescription: d\nextends: host\n")
    package = tmp_path / "m.tar"
    assert main([str(DIGITS), "--board", str(board), "--emit", "c", "-o", str(package), "-q"]) == 0
    assert main(["run", str(package), "-q"]) == 2
    assert main(["run", str(package), "-q", "--board", str(board)]) == 0
    assert main(["run", str(package), "-q", "--board", "host"]) == 0
    monkeypatch.setenv("CRTEXPORT_BOARD_PATH", str(tmp_path))
    assert main(["run", str(package), "-q"]) == 0
    capsys.readouterr()
    board.write_text(board.read_text() + "cpu: {name: x86-64-v3, cflags: [-march=x86-64-v3]}\n")
    assert main(["run", str(package), "-q"]) == 2
    said = capsys.readouterr().err
    assert "another cpu: name than the board mine: x86-64-v2, not x86-64-v3" in said


@pytest.mark.parametrize("name", ["a;b.c", "$(touch x).c", "$<1:a>.c", 'a".c', "a b.c", "-o.c"])
def test_files_are_unpacked_only_under_names_that_build_systems_take(
    name: str, tmp_path: Path
) -> None:
    made = repacked(
        exported(tmp_path), tmp_path / "odd.tar", files={f"codegen/host/src/{name}": b"int x;\n"}
    )
    assert main(["unpack", str(made), str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out" / "src").exists()


@pytest.mark.qemu
def test_firmware_that_reaches_this_computer_needs_trust_and_other_firmware_does_not(
    tmp_path: Path
) -> None:
    require("arm-none-eabi-gcc"), require("qemu-system-arm"), require("qemu-system-i386")
    arm = repacked(exported(tmp_path, board="mps2_an386"), tmp_path / "arm.tar")
    with pytest.raises(CrtExportError, match="semihosting gives its code your files"):
        crtexport.run(arm)
    assert crtexport.run(arm, trust_package=True).outputs
    x86 = repacked(exported(tmp_path, board="qemu_x86"), tmp_path / "x86.tar")
    assert crtexport.run(x86).outputs


@pytest.mark.qemu
def test_semihosting_is_why(tmp_path: Path) -> None:
    """Code of a package starts a program of this computer: the reason for the rule."""
    require("arm-none-eabi-gcc"), require("qemu-system-arm")
    package, canary = exported(tmp_path, board="mps2_an386"), tmp_path / "canary"
    name = "codegen/host/src/digits_lib0.c"
    source = open_package(package).read(name).decode()
    command = f"touch {shlex.quote(str(canary))}"
    system = f"""
static int leave(void)
{{
    static const char command[] = "{command}";
    static const struct {{ const char *text; unsigned size; }} block = {{command, {len(command)}}};
    register int r0 __asm__("r0") = 0x12;
    register const void *r1 __asm__("r1") = &block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}}
"""
    start = source.index("int32_t tvmgen_digits_run(")
    body = source.index("{", start) + 1
    text = f"{source[:start]}{system}\n{source[start:body]}\n    (void)leave();{source[body:]}"
    evil = repacked(package, tmp_path / "evil.tar", files={name: text.encode()})
    with pytest.raises(CrtExportError, match="was not exported on this computer"):
        crtexport.run(evil)
    assert not canary.exists()
    crtexport.run(evil, trust_package=True)
    assert canary.exists()


def test_no_text_of_the_metadata_executes_anything(tmp_path: Path) -> None:
    """Every text of a package with a library of others, which reaches make and CMake."""
    package, canary = exported(tmp_path), tmp_path / "canary"
    library = {
        "name": "lib", "version": "1", "url": "https://example.org", "variable": "LIB",
        "include": ["include"], "sources": ["src/*.c"],
    }

    def with_library(data: Json) -> None:
        (model,) = data["crtexport"]["modules"].values()
        model["libraries"] = [library]

    package = repacked(package, tmp_path / "with.tar", metadata=with_library)
    data = json.loads(open_package(package).read(METADATA))
    places = [place for place in texts(data) if place[1] not in ("members", "objects")]
    assert any(place[-2:] == (0, "url") for place in places)
    plain, seen = _project(package, tmp_path / "plain"), 0
    for number, place in enumerate(places):
        # One of them each, and what ends a text of CMake's where texts of libraries are.
        chosen = {HOSTILE[number % len(HOSTILE)]}
        for text in chosen | {*(HOSTILE[::3] if "libraries" in place else ())}:
            evil = _with_text(package, tmp_path / "evil.tar", place, text.format(canary))
            try:
                made = _project(evil, tmp_path / "project")
            except CrtExportError:
                continue
            if made != plain:
                seen += 1
                subprocess.run(["make", "-n"], cwd=tmp_path / "project", check=False,
                               capture_output=True)
            assert not canary.exists(), (place, text)
    assert seen == 0  # no such text ever reaches a project


def _with_text(package: Path, to: Path, place: Place, text: str) -> Path:
    return repacked(package, to, metadata=lambda data: put(data, place, text))


def _project(package: Path, folder: Path) -> dict[str, bytes]:
    """Returns what is written of a package: for make, and for CMake."""
    opened = open_package(package)
    board = load_board("host")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib" / "include").mkdir(parents=True)
    (folder / "lib" / "src").mkdir()
    (folder / "lib" / "src" / "a.c").write_text("")
    parts = parts_from_package(opened)
    variables = {f"{library.variable}_PATH": str(folder / "lib") for library in parts.libraries}
    before = dict(os.environ)
    os.environ.update({k: v for k, v in variables.items() if k not in before})
    try:
        write_project(parts, board, folder)
        write_application(parts, board, package, folder / "zephyr")
    finally:
        for name in variables:
            if name not in before:
                del os.environ[name]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        # The package itself, and the list with its hash, are never the same.
        if path.is_file() and path.suffix != ".tar" and path.name[0] != "."
    }
