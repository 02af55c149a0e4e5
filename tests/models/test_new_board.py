"""CONTRIBUTING's promise, followed: a board is one YAML file, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.firmware.board import SEARCH_PATH
from crtexport.mlf.npz import load_npz
from crtexport.support.errors import CrtExportError
from tests.helpers import ROOT, require

DIGITS = ROOT / "docs" / "examples" / "digits"
BOARD = """\
name: {name}
description: A board that nobody has yet
extends: mps2_an386
memory:
  flash: {{origin: 0x00000000, size: 64KiB}}
  ram: {{origin: 0x20000000, size: 32KiB}}
stack_size: 2KiB
"""


@pytest.mark.qemu
def test_one_file_is_a_whole_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("arm-none-eabi-gcc")
    require("qemu-system-arm")
    boards = tmp_path / "boards"
    boards.mkdir()
    file = boards / "tenth_board.yaml"
    file.write_text(BOARD.format(name="tenth_board"))
    monkeypatch.setenv(SEARCH_PATH, str(boards))
    package = tmp_path / "digits.tar"
    crtexport.export(DIGITS / "model.json", board="tenth_board", output=package)
    file.unlink()
    with pytest.raises(CrtExportError, match="there is no board 'tenth_board'"):
        crtexport.run(package)
    # The package knows its board.
    images = load_npz(DIGITS / "test_images.npz")
    result = crtexport.run(package, images, trust_package=True)
    predictions = [int(row[0].argmax()) for row in result.outputs]
    assert predictions == np.load(DIGITS / "test_labels.npy").tolist()
    assert result.instructions_first == result.instructions_second
