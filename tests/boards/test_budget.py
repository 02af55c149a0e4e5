"""Models that fit a board and that don't, and what the answer tells of those."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from crtexport.firmware.board import Usage, check_budget, list_boards, load_board
from crtexport.firmware.budget import check_tensors, excess, room, with_pools
from crtexport.pipeline.driver import export
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import Level
from tests.tflite_builder import ModelBuilder

MODEL = Usage(constants=250_000, code=20_000, workspace=15_000, io=700)


def test_a_model_that_fits_passes() -> None:
    check_budget(load_board("nrf52840dk"), MODEL, list_boards())


def test_a_model_that_does_not_fit_comes_with_a_table_and_the_boards_that_it_fits() -> None:
    with pytest.raises(CrtExportError) as caught:
        check_budget(load_board("qemu_cortex_m0"), MODEL, list_boards())
    text = str(caught.value)
    assert "7,856 bytes (7.7 KiB) too much for flash" in text
    assert "1,364 bytes (1.3 KiB) too much for ram" in text
    for row in (
        ("constants", "flash", "250,000"), ("code", "flash", "20,000"),
        ("workspace", "ram", "15,000"), ("inputs and outputs", "ram", "700"),
        ("stack", "ram", "2,048"), ("size of flash", "flash", "262,144"),
        ("together in ram", "ram", "17,748"),
    ):
        assert " ".join(row) in " ".join(text.split()), row
    assert "nrf52840dk" in text.split("it would fit:")[1]
    assert "qemu_cortex_m0" not in text.split("it would fit:")[1]


@pytest.mark.parametrize(("code", "level", "hint"), [
    (20_000, "speed", "--optimize balanced or --optimize compact or --optimize size"),
    (20_000, "balanced", "--optimize compact or --optimize size"),
    (20_000, "size", None), (5_000, "speed", None), (0, "speed", None),
])
def test_too_much_code_comes_with_levels_that_have_less(
    code: int, level: Level, hint: str | None
) -> None:
    usage = Usage(constants=270_000 - code, code=code)
    with pytest.raises(CrtExportError) as caught:
        check_budget(load_board("qemu_cortex_m0"), usage, (), level)
    assert "7,856 bytes (7.7 KiB) too much for flash" in str(caught.value)
    assert ("less code" in str(caught.value)) == (hint is not None)
    assert hint is None or f"less code with {hint};" in f"{caught.value};"


def test_a_model_that_fits_nothing_says_so() -> None:
    boards = [board for board in list_boards() if not board.hosted]
    with pytest.raises(CrtExportError, match="fits none of the known boards"):
        check_budget(load_board("nrf52840dk"), Usage(constants=1 << 31), boards)


def test_the_host_has_room_for_everything() -> None:
    check_budget(load_board("host"), Usage(constants=5 << 30, workspace=1 << 40), ())


def test_exactly_full_fits_and_one_byte_more_does_not() -> None:
    board = load_board("nrf52840dk")
    assert excess(board, Usage(constants=1 << 20)) == {}
    assert excess(board, Usage(constants=(1 << 20) + 1)) == {"flash": 1}
    ram = board.memory["ram"].size - board.stack_size
    assert excess(board, Usage(workspace=ram + 1)) == {"ram": 1}


def test_each_kind_counts_against_the_memory_that_holds_it() -> None:
    board = load_board("mps3_an547")
    # Inputs and outputs are in another memory than stack and workspace.
    fast = board.memory["dtcm"].size - board.stack_size
    usage = Usage(workspace=fast, io=board.memory["ram"].size)
    assert excess(board, usage) == {}
    spilled = replace(usage, workspace=fast + 1, spilled=(("ram", 7),))
    assert excess(board, spilled) == {"dtcm": 1, "ram": 7}


def test_pools_leave_room_for_all_else() -> None:
    board = load_board("mps3_an547")
    kept = Usage(workspace=100, io=1000)
    dtcm, ram = board.memory["dtcm"].size, board.memory["ram"].size
    assert room(board, kept) == (dtcm - board.stack_size - 100, ram - 1000)
    chosen = with_pools(board, (("ram", 5000), ("dtcm", 1 << 30)))
    assert chosen.placement.workspaces == ("ram", "dtcm")
    assert room(chosen, kept, (("ram", 5000), ("dtcm", 1 << 30)))[0] == 5000
    assert room(chosen, kept, (("ram", 5000), ("dtcm", 1 << 30)), ((700,), (300, 64))) == (
        4000, dtcm - board.stack_size - 64
    )
    assert room(chosen, kept, (("ram", 5000), ("dtcm", 1 << 30)), ((6000,),))[0] == 0
    assert room(load_board("mps2_an386"), kept) == (None,)
    assert room(load_board("host"), kept) == (None,)


def huge_relus() -> bytes:
    m = ModelBuilder()
    shape = (1, 20_000, 20_000, 8)
    x, y, z = (m.tensor(name, shape, "int8", scale=0.5) for name in ("x", "middle", "z"))
    m.op("RELU", [x], [y])
    m.op("RELU", [y], [z])
    return m.build([x], [z])


@pytest.mark.parametrize("io", ["caller", "workspace"])
def test_a_tensor_that_no_memory_holds_is_named_before_any_proof(
    io: Literal["caller", "workspace"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(huge_relus())
    assert model.stat().st_size < 1000
    monkeypatch.setattr("crtexport.pipeline.driver.Lowerer", lambda *_: pytest.fail("planned"))
    output = tmp_path / "x.tar"
    with pytest.raises(CrtExportError, match="tensor 'x': it takes 3,200,000,000 bytes") as caught:
        export(model, board="mps2_an386", io=io, output=output)
    assert "all memories of the board together have 8,388,608" in str(caught.value)
    assert not output.exists()


def test_no_tensor_is_larger_than_addresses_reach() -> None:
    host, small = load_board("host"), load_board("mps2_an386")
    check_tensors(host, [("x", 1 << 47)])
    check_tensors(small, [("x", 1 << 32)], must_fit=False)
    for board, size in ((host, (1 << 47) + 1), (small, (1 << 32) + 1)):
        with pytest.raises(CrtExportError, match="the processor can address"):
            check_tensors(board, [("x", size)], must_fit=False)


def test_inputs_in_flash_and_io_in_the_workspace_are_named_where_ram_is_short() -> None:
    board = load_board("mps2_an386")
    ram, flash = (board.memory[name].size for name in ("ram", "flash"))
    usage = Usage(io=ram, inputs=ram // 2)
    with pytest.raises(CrtExportError, match=r"--const-inputs, or INPUTS CONST .*; --io workspace"):
        check_budget(board, usage, ())
    check_budget(board, usage.with_const_inputs(), ())
    with pytest.raises(CrtExportError) as caught:
        check_budget(board, replace(usage, constants=flash), ())
    assert "INPUTS CONST" not in str(caught.value), "flash is full"
    assert "--io workspace" in str(caught.value)
    with pytest.raises(CrtExportError) as caught:
        check_budget(board, Usage(workspace=ram), list_boards())
    assert "--io workspace" not in str(caught.value), "it takes no inputs and outputs"
    assert "fit" in str(caught.value)


def test_other_boards_are_no_answer_for_a_board_of_the_users_own() -> None:
    own = replace(load_board("qemu_cortex_m0"), name="own")
    with pytest.raises(CrtExportError) as caught:
        check_budget(own, MODEL, list_boards())
    assert "it would fit" not in str(caught.value)
    assert "known boards" not in str(caught.value)
