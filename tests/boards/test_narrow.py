"""Boards with pointers of 16 bits: networks on a simulated processor, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.firmware.board import load_board
from crtexport.firmware.board_rules import board_from_data
from crtexport.firmware.budget import check_tensors
from crtexport.mlf.arrays import samples_for
from crtexport.mlf.reader import open_package
from crtexport.mlf.unpack import unpack_for_build
from crtexport.support.errors import CrtExportError
from tests.backends.c.avr_support import CONSOLE, compiled, printed, tools
from tests.boards.drawn import Json
from tests.cli.support import DIGITS
from tests.differential.cases import CASES, SeededDraw

BOARD = "arduino_mega2560"


def _network(name: str, folder: Path) -> Path:
    """A network: the example, or an operator's case, as ``operator dtype``."""
    if name == "digits":
        return DIGITS
    operator, dtype = name.split()
    path = folder / "model.tflite"
    path.write_bytes(CASES[operator](SeededDraw(0), dtype).content)
    return path


@pytest.mark.parametrize("name", [
    "digits", "fully_connected int8", "conv_2d int16", "conv_2d float32", "softmax float32",
    "unidirectional_sequence_lstm float32",
])
def test_networks_give_on_avr_what_they_give_on_the_host(name: str, tmp_path: Path) -> None:
    tools()
    path = crtexport.export(
        _network(name, tmp_path), board=BOARD, module_name="net", output=tmp_path / "net.tar"
    ).path
    package = open_package(path)
    unpack_for_build(package, tmp_path / "out")
    include = f"-I{tmp_path / 'out' / 'include'}"
    objects = [compiled(s, include) for s in sorted((tmp_path / "out" / "src").glob("*.c"))]
    (sample,) = samples_for(package.inputs, None).rows
    wanted = crtexport.simulate(path)[0]
    lines = [CONSOLE, "#include <tvmgen_net.h>"]
    for key, array in sample.items():
        data = ",".join(map(str, np.ascontiguousarray(array).tobytes()))
        lines.append(f"static uint8_t in_{key}[] __attribute__((aligned(8))) = {{{data}}};")
    for key, array in wanted.items():
        lines.append(f"static uint8_t out_{key}[{array.nbytes}] __attribute__((aligned(8)));")
    lines += [
        "int main(void)", "{", "UCSR0B = 1 << TXEN0;",
        f"struct tvmgen_net_inputs x = {{{', '.join(f'.{k} = in_{k}' for k in sample)}}};",
        f"struct tvmgen_net_outputs y = {{{', '.join(f'.{k} = out_{k}' for k in wanted)}}};",
        "if (tvmgen_net_run(&x, &y) != 0) return 1;",
        *(f"print(out_{key}, sizeof out_{key});" for key in wanted), "stop();", "}",
    ]
    main = tmp_path / "main.c"
    main.write_text("\n".join(lines))
    assert printed(main, objects, include) == b"".join(a.tobytes() for a in wanted.values())


def _board(**changes: object) -> Json:
    data: Json = load_board(BOARD).to_data()
    return {**data, "name": "narrow", **changes}


@pytest.mark.parametrize(("changes", "key", "what"), [
    ({"memory": {"flash": {"origin": 0, "size": 1 << 18},
                 "ram": {"origin": 0x800200, "size": 1 << 16}}}, "memory → ram", "only code"),
    ({"placement": {"constants": "flash"}}, "memory → flash", "only code"),
])
def test_data_is_where_16_bits_reach(changes: Json, key: str, what: str) -> None:
    with pytest.raises(CrtExportError, match=what) as caught:
        board_from_data(_board(**changes), "file")
    assert f"file → {key}" in str(caught.value)


def test_only_other_processors_have_pointers_of_16_bits() -> None:
    data: Json = load_board("mps2_an386").to_data()
    data["cpu"]["pointer_bits"] = 16
    with pytest.raises(CrtExportError, match="pointers of 32 bits, not 16"):
        board_from_data(data, "file")


def test_a_tensor_that_16_bits_do_not_count_is_refused_by_name() -> None:
    board = load_board(BOARD)
    check_tensors(board, [("x", 32767)])
    with pytest.raises(CrtExportError, match=r"takes 32,768 bytes.*can have 32,767") as caught:
        check_tensors(board, [("x", 32768)])
    assert "tensor 'x'" in str(caught.value)
