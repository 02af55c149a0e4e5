"""The board that this computer is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.firmware import native
from crtexport.firmware.board import SEARCH_PATH, load_board
from crtexport.ir.ops import Relu
from crtexport.support import this_processor
from crtexport.support.errors import CrtExportError
from tests.plan.graphs import GraphBuilder

SMALL = "fpu cx16 lahf_lm popcnt ssse3 sse4_1 sse4_2"
LARGE = f"{SMALL} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
WIDE = f"{LARGE} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.fixture
def processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which Linux describes them."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(this_processor, "_CPUINFO", path)
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


@pytest.mark.parametrize(("flags", "cpu", "features", "missing"), [
    (SMALL, "x86-64-v2", (), ""), (SMALL, "x86-64-v3", (), "abm, avx, avx2, bmi1, bmi2"),
    (LARGE, "x86-64-v3", ("+avxvnni",), "avx_vnni"), (WIDE, "x86-64-v4", (), ""),
    (f"{LARGE} avx_vnni", "x86-64-v3", ("+avxvnni", "-sse4a", "+prefer-256-bit"), ""),
    (WIDE, "x86-64-v4", ("+avx512vnni", "+sse4.2"), "avx512_vnni"),
    (LARGE, "cortex-m4", ("+dsp",), ""), ("", "x86-64-v4", (), ""),
])
def test_code_with_instructions_that_a_processor_lacks_is_refused(
    flags: str, cpu: str, features: tuple[str, ...], missing: str, processors: Path
) -> None:
    processors.write_text(described(flags))
    if not missing:
        this_processor.check_processor(cpu, features, "m.tar")
        return
    with pytest.raises(CrtExportError, match=f"m.tar: .* doesn't have: {missing}") as caught:
        this_processor.check_processor(cpu, features, "m.tar")
    assert "`native`" in caught.value.hint


def test_nothing_runs_what_this_computer_cannot(tmp_path: Path, processors: Path) -> None:
    """Programs would end by a signal, and simulations take this process with them."""
    b = GraphBuilder()
    x = b.input(1, 4)
    graph = b.finish(b.node(Relu(), x))
    package = tmp_path / "m.tar"
    crtexport.export(graph, board="host_avx512", output=package)
    processors.write_text(described(SMALL))
    sample = {"t0": np.zeros((1, 4), np.float32)}
    for action in (
        lambda: crtexport.simulate(package, sample), lambda: crtexport.run(package, sample),
        lambda: crtexport.bench(graph, board="host_avx512"),
    ):
        with pytest.raises(CrtExportError, match=r"processor doesn't have: abm, avx"):
            action()
