"""The importer that reads a file is found by its content; files that none reads are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from crtexport.importers import load
from crtexport.support.errors import CrtExportError

CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "short": (b"\x1c\0\0", "the file is truncated: it has only 3 bytes"),
    "version alone": (b"\x08\x07", "the file is truncated: it has only 2 bytes"),
    "keras": (b"PK\x03\x04" + bytes(60), "this is a ZIP archive, as .keras and PyTorch files are"),
    "h5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "this is an HDF5 file"),
    "pickle": (b"\x80\x04\x95" + bytes(60), "this is a Python pickle"),
    "unknown": (b"\x1c\0\0\0TFL9" + bytes(60), r"begins with 1c 00 00 00 54 46 4c 39; a \.tflite"),
    "text": (b"hello, world", "unknown format"),
    "json list": (b"[1, 2, 3, 4]", "unknown format"),
}


@pytest.mark.parametrize(("content", "message"), CONTENTS.values(), ids=CONTENTS.keys())
def test_foreign_content_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    with pytest.raises(CrtExportError, match=message) as caught:
        load(path)
    assert caught.value.location == (str(path),)


def test_how_pytorch_and_keras_write_files_that_are_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(CrtExportError) as caught:
        load(path)
    assert caught.value.hint is not None
    assert "torch.onnx.export(model" in caught.value.hint
    assert "model.export('model.onnx'" in caught.value.hint


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="there is no such file"):
        load(tmp_path / "model.tflite")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="this is a directory"):
        load(tmp_path)


def test_special_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CrtExportError, match="not a regular file"):
        load(tmp_path / "pipe")


def test_unusable_name(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match=r"can't be read: .*embedded null"):
        load(tmp_path / "a\0b")


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_failing_disk(opened: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the file could be opened before."""
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3")
    usual = Path.open
    calls: list[Path] = []

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        calls.append(self)
        if len(calls) > opened:
            raise OSError(5, "Input/output error")
        return usual(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CrtExportError, match="can't be read: Input/output error"):
        load(path)
