"""Board files: what they may say, and how mistakes in them are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import crtexport
from crtexport.firmware.board import SEARCH_PATH, list_boards, load_board
from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.board_schema import QemuRunner
from crtexport.firmware.sizes import format_size, parse_size
from crtexport.support import resources
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Flash
from tests.cli.support import DIGITS

SENSOR = """\
name: sensor
description: Our sensor node
extends: cortex_m4f
memory:
  flash: {origin: 0x00000000, size: 1MiB}
  ram: {origin: 0x20000000, size: 256KiB}
counter: {kind: systick, hz: 64000000}
runner: {kind: none, reason: it hangs on a probe}
"""


def write(folder: Path, text: str, name: str = "sensor") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistake(path: Path | str) -> str:
    with pytest.raises(CrtExportError) as caught:
        load_board(path)
    return str(caught.value)


def changed(folder: Path, old: str, new: str) -> str:
    assert old in SENSOR
    return mistake(write(folder, SENSOR.replace(old, new)))


def test_a_board_takes_over_what_its_family_says(tmp_path: Path) -> None:
    board = load_board(write(tmp_path, SENSOR))
    assert board.description == "Our sensor node"
    assert board.target.cpu == "cortex-m4"
    assert board.toolchain.compiler == ("arm-none-eabi-gcc",)
    assert board.memory["ram"].size == 256 * 1024
    assert (board.flash, board.ram) == (("flash",), ("ram",))


def test_mappings_merge_and_lists_are_replaced(tmp_path: Path) -> None:
    board = load_board(write(tmp_path, SENSOR + "cpu: {features: [+dsp]}\n"))
    assert board.target.features == ("+dsp",)
    assert board.target.triple == "thumbv7em-none-none-eabihf"


def test_a_section_of_another_kind_keeps_nothing_of_the_old_one(tmp_path: Path) -> None:
    text = "name: sensor\ndescription: d\nextends: mps2_an386\nrunner: {kind: none, reason: r}\n"
    assert not isinstance(load_board(write(tmp_path, text)).runner, QemuRunner)


def test_boards_of_the_search_path_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SENSOR)
    text = "name: qemu_x86\ndescription: mine\nextends: i386_freestanding\n"
    memory = "memory: {flash: {origin: 0, size: 1MiB}, ram: {origin: 0x200000, size: 1MiB}}\n"
    write(tmp_path, text + memory + "runner: {kind: none, reason: r}\n", "qemu_x86")
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path))
    assert load_board("sensor").name == "sensor"
    assert load_board("qemu_x86").description == "mine"
    names = [board.name for board in list_boards()]
    assert names == sorted(names)
    assert {"sensor", "mps2_an386"} <= set(names)


def test_a_folder_of_the_search_path_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path / "gone"))
    assert SEARCH_PATH in mistake("qemu_x86")


def test_an_unknown_board_lists_the_known_ones() -> None:
    text = mistake("qemu_x68")
    assert "there is no board 'qemu_x68'" in text
    assert "did you mean qemu_x86?" in text
    assert "`crtexport boards` lists all boards" in text


def test_a_file_in_this_folder_is_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text(SENSOR)
    with pytest.raises(CrtExportError) as caught:
        load_board("mine.txt")
    assert caught.value.hint == "a board's file is named with its folder: ./mine.txt"
    assert load_board("./mine.txt").name == "sensor"


def test_an_unknown_key_names_file_and_key(tmp_path: Path) -> None:
    text = changed(tmp_path, "counter:", "memmory: 1\ncounter:")
    assert "sensor.yaml → memmory: unknown key" in text
    assert "did you mean 'memory'?" in text


def test_an_unknown_key_inside_a_section_is_found(tmp_path: Path) -> None:
    text = changed(tmp_path, "size: 1MiB", "sise: 1MiB")
    assert "sensor.yaml → memory → flash → sise: unknown key" in text
    assert "did you mean 'size'?" in text


def test_an_unknown_key_of_a_runner_is_shown_as_the_file_has_it(tmp_path: Path) -> None:
    text = changed(tmp_path, "reason:", "raeson:")
    assert "sensor.yaml → runner → r" in text
    assert "qemu" not in text


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    text = changed(tmp_path, "description: Our sensor node\n", "")
    assert "sensor.yaml → description: this key is missing" in text


def test_a_mistake_in_the_parent_names_the_parent(tmp_path: Path) -> None:
    write(tmp_path, "name: base\nabstract: true\nextends: cortex_m4f\nstack_size: 4KB\n", "base")
    path = write(tmp_path, SENSOR.replace("cortex_m4f", "base"))
    assert "base.yaml → stack_size" in mistake(path)


@pytest.mark.parametrize("size", ["256KB", "1.5MiB", "-1", "0", "lots", "1 MB", "[]", "true"])
def test_a_bad_size_is_named(tmp_path: Path, size: str) -> None:
    assert "sensor.yaml → memory → ram → size" in changed(tmp_path, "256KiB", size)


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("512B", 512), ("16KiB", 16384), ("4 MiB", 4 << 20)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_sizes_are_written_as_people_do() -> None:
    assert [format_size(n) for n in (300, 2048, 3 << 19)] == ["300 B", "2 KiB", "1.5 MiB"]


def test_a_bad_address_is_named(tmp_path: Path) -> None:
    assert "ram → origin: 'start' is no address" in changed(tmp_path, "0x20000000", "start")


def test_overlapping_memories_are_refused(tmp_path: Path) -> None:
    assert "memories flash and ram overlap" in changed(tmp_path, "0x20000000", "0x00080000")


def test_memory_above_the_address_space_is_refused(tmp_path: Path) -> None:
    assert "ends above the addresses" in changed(tmp_path, "0x20000000", "0xfffff000")


def test_a_placement_into_no_memory_is_refused(tmp_path: Path) -> None:
    text = changed(tmp_path, "counter:", "placement: {code: itcm}\ncounter:")
    assert "puts code into memory 'itcm'" in text


def test_a_parent_that_does_not_exist_is_named(tmp_path: Path) -> None:
    text = changed(tmp_path, "cortex_m4f", "cortex_m4g")
    assert "sensor.yaml → extends: there is no board 'cortex_m4g' to extend" in text
    assert "did you mean 'cortex_m4f'?" in text


@pytest.mark.parametrize("parent", ["[a, b]", "../qemu_x86", '"a\\0b"', "7"])
def test_a_parent_is_one_name(tmp_path: Path, parent: str) -> None:
    assert "extends" in changed(tmp_path, "extends: cortex_m4f", f"extends: {parent}")


def test_boards_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "name: a\nextends: b\n", "a")
    path = write(tmp_path, "name: b\nextends: a\n", "b")
    assert "in a cycle" in mistake(path)


def test_a_systick_needs_its_clock(tmp_path: Path) -> None:
    assert "needs hz" in changed(tmp_path, "kind: systick, hz: 64000000", "kind: systick")


def test_a_key_that_comes_twice_is_refused(tmp_path: Path) -> None:
    assert "'name' comes twice" in mistake(write(tmp_path, SENSOR + "name: other\n"))


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n", "1: 2\n", "a: !!python/name:os.system x"])
def test_what_is_no_board_at_all_is_refused(tmp_path: Path, text: str) -> None:
    assert "sensor.yaml" in mistake(write(tmp_path, text))


@pytest.mark.parametrize("text", [
    "name: &name [*name]", "memory: &all {ram: *all}",
    "\n".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}' if i else 'x'] * 9)}]" for i in range(9)),
])
def test_values_without_end_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(CrtExportError, match="more values than a board can have"):
        load_board(tmp_path / "x.yaml")


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").symlink_to("x.yaml")
    with pytest.raises(CrtExportError, match="can't be read"):
        load_board(tmp_path / "x.yaml")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "can't be read" in mistake(tmp_path / "gone.yaml")


def test_a_board_found_by_name_bears_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SENSOR, "node")
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path))
    assert "name is 'sensor'" in mistake("node")


def test_data_that_is_no_board_is_refused() -> None:
    data = load_board("qemu_x86").to_data()
    with pytest.raises(CrtExportError, match=r"package → stak_size: unknown key"):
        board_from_data(data | {"stak_size": 1}, "package")


FAMILY = """
name: bare_aarch64
description: AArch64 without an operating system
abstract: true
architecture: aarch64_bare
cpu: {triple: aarch64-none-elf, name: cortex-a53, pointer_bits: 64, stack_align: 16}
toolchain: {kind: gcc, compiler: [aarch64-none-elf-gcc]}
console: {kind: semihosting}
"""
MEMBER = """
name: pi
description: A board of the new family
extends: bare_aarch64
memory: {flash: {origin: 0, size: 1MiB}, ram: {origin: 0x20000000, size: 1MiB}}
runner: {kind: none, reason: connected to a debug probe}
"""


def test_a_board_says_how_its_flash_is_read(tmp_path: Path) -> None:
    assert load_board(write(tmp_path, SENSOR)).flash_timing is None
    flash = "flash: {wait_states: 3, code_cache: 1KiB, line: 32}\n"
    board = load_board(write(tmp_path, SENSOR + flash))
    assert board.flash_timing == Flash(wait_states=3, code_cache=1024, data_cache=0, line=32)
    assert board_from_data(board.to_data(), "here") == board
    assert "line: a line has a power of two of bytes" in mistake(
        write(tmp_path, SENSOR + "flash: {wait_states: 3, line: 24}\n")
    )
    assert "code_cache: this is no multiple of 16" in mistake(
        write(tmp_path, SENSOR + "flash: {wait_states: 3, code_cache: 1000}\n")
    )
    assert "wait_states" in mistake(write(tmp_path, SENSOR + "flash: {code_cache: 1KiB}\n"))


def test_a_new_architecture_is_a_family_and_a_folder_of_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, FAMILY, "bare_aarch64")
    path = write(tmp_path, MEMBER, "pi")
    with pytest.raises(CrtExportError, match=r"architecture: there is no architecture 'aarch64_b"):
        load_board(path)
    shutil.copytree(resources.templates_dir(), tmp_path / "templates")
    monkeypatch.setattr(resources, "templates_dir", lambda: tmp_path / "templates")
    (tmp_path / "templates" / "baremetal" / "aarch64_bare").mkdir()
    (tmp_path / "templates" / "baremetal" / "aarch64_bare" / "start.S").touch()
    board = load_board(path)
    assert board.architecture == "aarch64_bare"
    package = crtexport.export(DIGITS, board=board, output=tmp_path / "digits.tar")
    assert package.path.is_file()
    write(tmp_path, FAMILY.replace("aarch64-none", "aarch65-none"), "bare_aarch64")
    with pytest.raises(CrtExportError, match="'aarch65' is no processor of the architecture"):
        load_board(path)


def test_a_misspelt_architecture_is_corrected(tmp_path: Path) -> None:
    text = MEMBER.replace("bare_aarch64", "cortex_m4f\narchitecture: cortex_n")
    path = write(tmp_path, text, "pi")
    with pytest.raises(CrtExportError, match="did you mean 'cortex_m'"):
        load_board(path)
