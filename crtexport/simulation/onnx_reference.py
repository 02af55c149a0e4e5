"""ONNX Runtime as the reference for ``.onnx`` files: it runs the user's file as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from crtexport.importers.formats import InputChoices
from crtexport.importers.onnx import result_names
from crtexport.ir.graph import Graph
from crtexport.simulation.reference import Array, ReferenceModel
from crtexport.simulation.runtimes import find_runtime
from crtexport.support.errors import CrtExportError, RunFailedError

Inner = Literal["", "apart", "fused"]
"""Results inside of a file: none, each as its node gives it, or as they are after the optimizer."""


def fused_names(path: Path) -> frozenset[str]:
    """Returns the names of the results that are left after ONNX Runtime's optimizer, which computes
    many nodes together. Raises as :class:`OnnxReference` does."""
    with ReferenceModel(path, runtime=find_runtime("onnxruntime")) as runtime:
        return result_names(runtime.optimized_file())


class OnnxReference:
    """A file in ONNX Runtime; a context manager, whose process ends with it.

    ``graph`` is what was imported from the file with ``choices``: its inputs have the same names,
    and inputs with a value in ``choices`` get that value. ``inner``: the outputs of ``graph`` are
    intermediate results, by their names in the file. Raises ToolMissingError if the runtime is
    missing or can't start, and CrtExportError for a model that it refuses, and for images with
    channels last, since those of the file have channels first.
    """

    def __init__(
        self, path: Path, graph: Graph, choices: InputChoices, *, inner: Inner = ""
    ) -> None:
        if choices.layout != "nchw":
            raise CrtExportError(
                "the reference has images with their channels first, as the file says",
                location="--input-layout", hint="leave it out to compare",
            )
        self._names = [graph.tensors[tensor].name for tensor in graph.inputs]
        self._bound = {
            name: np.load(file, allow_pickle=False) for name, file in choices.values.items()
        }
        self._wanted = [graph.tensors[tensor].name for tensor in graph.outputs]
        self._runtime = ReferenceModel(path, runtime=find_runtime("onnxruntime"))
        if inner:
            there = {output.name for output in self._runtime.outputs}
            self._runtime.add_outputs(
                [name for name in self._wanted if name not in there], fused=inner == "fused"
            )

    def __enter__(self) -> OnnxReference:
        return self

    def __exit__(self, *_: object) -> None:
        self._runtime.close()

    @property
    def description(self) -> str:
        """For example ``"onnxruntime 1.32.0 CPUExecutionProvider"``."""
        return self._runtime.description

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Returns the outputs for ``inputs``, both in the order of the graph."""
        return self._named(self._runtime.run(self._given(inputs)))

    def exact(self, inputs: Sequence[Array]) -> list[Array] | None:
        """Returns the outputs computed in float64; None if no installed package computes them."""
        try:
            found = self._named(self._runtime.exact(self._given(inputs)))
        except RunFailedError:
            raise
        except CrtExportError:
            return None
        return None if any(array.dtype == np.float32 for array in found) else found

    def _given(self, inputs: Sequence[Array]) -> list[Array]:
        given = {**self._bound, **dict(zip(self._names, inputs, strict=True))}
        return [given[tensor.name] for tensor in self._runtime.inputs]

    def _named(self, outputs: Sequence[Array]) -> list[Array]:
        by_name = dict(zip((o.name for o in self._runtime.outputs), outputs, strict=True))
        return [by_name[name] for name in self._wanted]
