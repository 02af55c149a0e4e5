"""The files that are mutated: networks as .tflite and as model.json, whole ones and operators."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tflite

from crtexport.importers import load
from crtexport.importers.crtjson.writing import save
from crtexport.simulation.tflite_writer import to_tflite
from crtexport.support.errors import CrtExportError
from tests.control.networks import NETWORKS as CONTROLLED
from tests.differential.cases import CASES, PAIRS, SeededDraw
from tests.helpers import ROOT, SHARED_MODELS

_EXAMPLE = ROOT / "docs" / "examples" / "digits" / "model.json"
_LARGE = 64
"""Bytes from which on a constant is mutated seldom: most of its values mean nothing."""


@dataclass(frozen=True)
class Seed:
    """A file that loads; ``dull`` are the (start, end) of large constants in it.

    ``beside`` are the files that it refers to, by name.
    """

    name: str
    content: bytes
    dull: tuple[tuple[int, int], ...] = ()
    beside: dict[str, bytes] = field(default_factory=dict)

    @property
    def is_json(self) -> bool:
        return self.content.lstrip().startswith(b"{")


def tflite_seed(name: str, content: bytes) -> Seed:
    """A .tflite file with the places of its large constants."""
    model = tflite.Model.GetRootAs(content, 0)
    dull = []
    for index in range(model.BuffersLength()):
        data = model.Buffers(index).DataAsNumpy()
        if not isinstance(data, int) and data.size > _LARGE:
            start = content.find(data.tobytes())
            dull.append((start, start + data.size))
    return Seed(name, content, tuple(sorted(dull)))


def operators(pairs: Sequence[tuple[str, str]] = PAIRS) -> Iterator[Seed]:
    """The single-operator networks of the differential tests: one of each element type, as .tflite
    and as model.json."""
    with tempfile.TemporaryDirectory() as folder:
        for name, dtype in pairs:
            content = CASES[name](SeededDraw(0), dtype).content
            yield tflite_seed(f"{name}-{dtype}", content)
            yield from _as_json(f"{name}-{dtype}", content, Path(folder))


def controlled(names: Iterable[str] = CONTROLLED) -> Iterator[Seed]:
    """Networks that run graphs of their own, as .tflite and as model.json."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            content = to_tflite(CONTROLLED[name]().graph)
            yield tflite_seed(name, content)
            yield from _as_json(name, content, Path(folder))


def networks() -> Iterator[Seed]:
    """The reference networks, where they are beside the checkout, and the bundled example."""
    for path in sorted(SHARED_MODELS.glob("*.tflite")):
        yield tflite_seed(path.stem, path.read_bytes())
    yield example()


def example() -> Seed:
    """The bundled model.json, with the file of its constants."""
    sidecar = _EXAMPLE.with_suffix(".safetensors")
    beside = {sidecar.name: sidecar.read_bytes()}
    return Seed("digits.json", _EXAMPLE.read_bytes(), beside=beside)


def _as_json(name: str, content: bytes, folder: Path) -> Iterator[Seed]:
    source, target = folder / "model.tflite", folder / "model.json"
    source.write_bytes(content)
    sidecar = target.with_suffix(".safetensors")
    sidecar.unlink(missing_ok=True)
    try:
        save(load(source), target)
    except CrtExportError:
        return
    beside = {sidecar.name: sidecar.read_bytes()} if sidecar.exists() else {}
    yield Seed(f"{name}.json", target.read_bytes(), beside=beside)
