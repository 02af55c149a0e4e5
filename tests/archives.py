"""Archives that tests make and unpack."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np


def unpack_archive(archive: Path, folder: Path) -> None:
    """Unpacks a tar archive. Filters came to Python 3.11 with 3.11.4; Debian 12 has 3.11.2."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)  # noqa: S202 - made by the test itself


def claimed(
    path: Path, name: str, dtype: str, shape: tuple[int, ...], *, version: int = 1
) -> None:
    """Adds an array to an .npz that says to have a type and shape, and has hardly any bytes."""
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    header = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == 1 else (
        np.lib.format.write_array_header_2_0
    )
    write(header, described)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", header.getvalue() + bytes(16))
