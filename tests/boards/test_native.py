"""The board that this computer is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crtexport.firmware import native
from crtexport.firmware.board import SEARCH_PATH, load_board
from crtexport.support.errors import CrtExportError

SMALL = "fpu cx16 lahf_lm popcnt ssse3 sse4_1 sse4_2"
LARGE = f"{SMALL} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
WIDE = f"{LARGE} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which Linux describes them."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(native, "_CPUINFO", path)
    return path


def described(*flags: str) -> str:
    return "\n".join(f"processor\t: {i}\nflags\t\t: {some}\n" for i, some in enumerate(flags))


@pytest.mark.parametrize(("flags", "board"), [
    ([SMALL], "host"), ([LARGE], "host_avx2"), ([f"{LARGE} avx_vnni"], "host_vnni"),
    ([LARGE.replace("movbe", "")], "host"), ([f"{SMALL} avx_vnni"], "host"),
    ([LARGE, SMALL], "host"), ([WIDE], "host_avx2"), ([f"{WIDE} avx_vnni"], "host_vnni"),
    ([f"{WIDE} avx512_vnni avx_vnni"], "host_avx512"), ([f"{LARGE} avx512_vnni"], "host_avx2"),
    ([f"{WIDE} avx512_vnni", f"{LARGE} avx_vnni"], "host_avx2"),
])
def test_it_has_what_every_processor_can_do(
    flags: list[str], board: str, processors: Path
) -> None:
    processors.write_text(described(*flags))
    assert load_board("native") == load_board(board)


@pytest.mark.parametrize("text", [
    described("fpu ssse3"), "", "Features\t: asimd\n", "flags\n", "\x00\xff",
])
def test_without_a_known_processor_there_is_none(text: str, processors: Path) -> None:
    processors.write_text(text, encoding="latin-1")
    with pytest.raises(CrtExportError, match="no board has code for this computer's processor"):
        load_board("native")


def test_where_processors_are_not_described_a_board_must_be_named(processors: Path) -> None:
    with pytest.raises(CrtExportError, match="processor can't be read"):
        load_board("native")


def test_a_board_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "native.yaml").write_text("name: native\ndescription: d\nextends: mps2_an386\n")
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path))
    assert load_board("native").architecture == "cortex_m"


def test_more_is_asked_for_boards_with_more_instructions() -> None:
    for name, needed in native._NEEDED.items():
        cpu = load_board(name).cpu
        level = re.fullmatch(r"x86-64-v([234])", cpu.name)
        assert level is not None
        assert ("avx2" in needed) == (level[1] >= "3")
        assert ("avx512f" in needed) == (level[1] == "4")
        assert ("avx512_vnni" in needed) == ("+avx512vnni" in cpu.features)
        assert ("avx_vnni" in needed) == ("+avxvnni" in cpu.features)
