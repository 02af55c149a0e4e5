"""Networks with huge constants, written in pieces: a model.json and a .safetensors file beside it.

Every 64-bit word of the constants is a function of its position, so any part can be checked without
the rest. Words are odd multiples of a constant, so no two places look alike.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

WINDOW = 1 << 20
_ODD = np.uint64(0x9E3779B97F4A7C15)


def words(seed: int, start: int, count: int) -> npt.NDArray[np.uint64]:
    """64-bit words ``start`` to ``start + count`` of the constant ``seed``."""
    index = np.arange(start, start + count, dtype=np.uint64) + np.uint64(seed << 40)
    mixed: npt.NDArray[np.uint64] = index * _ODD
    return mixed


@dataclass(frozen=True)
class Table:
    """A constant of ``rows`` times ``width`` elements, int8 without the lowest ``less`` bits or, if
    ``floats``, so many 128ths; ``width`` is a multiple of 8."""

    name: str
    seed: int
    rows: int
    width: int
    floats: bool = False
    less: int = 0

    @property
    def nbytes(self) -> int:
        return self.rows * self.width * (4 if self.floats else 1)

    @property
    def sums(self) -> float:
        """A scale with which sums of products with rows fit int8."""
        return 4096.0 / (1 << self.less)

    @property
    def dtype(self) -> str:
        return "float32" if self.floats else "int8"

    def chunks(self) -> Iterator[bytes]:
        left, at = self.rows * self.width // 8, 0
        while left:
            count = min(left, WINDOW // 8)
            yield self._elements(at, count).tobytes()
            at, left = at + count, left - count

    def row(self, index: int) -> npt.NDArray[np.int8 | np.float32]:
        """Returns what the file holds of one row."""
        return self._elements(index * self.width // 8, self.width // 8)

    def _elements(self, at: int, count: int) -> npt.NDArray[np.int8 | np.float32]:
        """8 * ``count`` of them."""
        bytes_ = words(self.seed, at, count).view(np.int8) >> self.less
        return bytes_.astype(np.float32) / np.float32(128) if self.floats else bytes_


def write_tables(path: Path, tables: list[Table]) -> None:
    """The .safetensors file of ``tables``."""
    header, end = {}, 0
    for table in tables:
        header[table.name] = {
            "dtype": "F32" if table.floats else "I8", "shape": [table.rows, table.width],
            "data_offsets": [end, end + table.nbytes],
        }
        end += table.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for table in tables:
            stream.writelines(table.chunks())


@dataclass(frozen=True)
class Large:
    """A network that looks ``count`` rows up in each of its tables, and multiplies one of them.

    Outputs ``y0``, ``y1`` … are the rows of each table; ``sums`` is a fully connected layer whose
    weights are the table ``dense``, if there is one.
    """

    tables: tuple[Table, ...]
    dense: Table | None = None
    count: int = 8

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self.tables, *([self.dense] if self.dense else [])))

    def write(self, folder: Path) -> Path:
        """Writes the files; returns the path of model.json."""
        everything = [*self.tables, *([self.dense] if self.dense else [])]
        write_tables(folder / "weights.safetensors", everything)
        path = folder / "large.json"
        path.write_text(json.dumps(self._document()))
        return path

    def _document(self) -> dict[str, object]:
        quant = {"scale": 0.5}
        tensors: list[dict[str, object]] = []
        nodes: list[dict[str, object]] = []
        for number, table in enumerate(self.tables):
            tensors += [
                {"name": f"x{number}", "dtype": "int32", "shape": [self.count]},
                self._constant(table),
                {
                    "name": f"y{number}", "dtype": "int8", "shape": [self.count, table.width],
                    "quantization": quant,
                },
            ]
            nodes.append({
                "op": "EmbeddingLookup", "inputs": [f"x{number}", table.name],
                "outputs": [f"y{number}"], "attributes": {},
            })
        inputs = [f"x{number}" for number in range(len(self.tables))]
        outputs = [f"y{number}" for number in range(len(self.tables))]
        if self.dense is not None:
            dtype = self.dense.dtype
            given: dict[str, object] = {"scale": 0.5, "zero_point": 3}
            sums: dict[str, object] = {"scale": self.dense.sums}
            tensors += [
                {"name": "given", "dtype": dtype, "shape": [1, self.dense.width]},
                self._constant(self.dense),
                {"name": "sums", "dtype": dtype, "shape": [1, self.dense.rows]},
            ]
            if not self.dense.floats:
                tensors[-3]["quantization"], tensors[-1]["quantization"] = given, sums
            nodes.append({
                "op": "FullyConnected", "inputs": ["given", self.dense.name],
                "outputs": ["sums"], "attributes": {},
            })
            inputs.append("given")
            outputs.append("sums")
        return {
            "format": "crtexport-model", "version": 1, "inputs": inputs, "outputs": outputs,
            "tensors": tensors, "nodes": nodes,
        }

    def _constant(self, table: Table) -> dict[str, object]:
        constant: dict[str, object] = {
            "name": table.name, "dtype": table.dtype, "shape": [table.rows, table.width],
            "data": {"file": "weights.safetensors", "tensor": table.name},
        }
        return constant if table.floats else {**constant, "quantization": {"scale": 0.5}}
