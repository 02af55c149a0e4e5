"""Networks that magnify rounding: measured against double precision, as the reference is."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

import crtexport
from crtexport.simulation.random_inputs import random_inputs
from crtexport.simulation.reference import ReferenceModel
from crtexport.simulation.runtimes import find_reference
from crtexport.support.errors import CrtExportError
from crtexport.verification import FLOAT_TOLERANCE
from tests.catalogue.wide import UnknownOperatorError, evaluate

Array = npt.NDArray[Any]

_WORSE = 10.0
"""How many times as far from double precision as the reference ours may be: one sum in another
order is that much better or worse by chance, where an output is a single number."""

_FAR = 1e-3
"""Parts of full scale that are no rounding."""


class Distances(Struct, frozen=True):
    """Largest differences of an output from double precision, as parts of full scale."""

    ours: float
    theirs: float

    @property
    def is_rounding(self) -> bool:
        """Returns whether ours is of the reference's order of magnitude, and both are small: a
        network that was read wrong would be near to itself and far from the reference."""
        return self.ours <= _WORSE * self.theirs and max(self.ours, self.theirs) <= _FAR


def distances(file: Path, numerics: str, samples: int) -> list[Distances] | None:
    """Returns, for each output that differs from the reference's, how far both are from double
    precision on the inputs that ``verify`` draws; None where nothing evaluates the network so."""
    graph = crtexport.load(file, numerics=numerics)
    inputs = random_inputs(graph, samples, 0)
    try:
        precise = [evaluate(graph, row) for row in inputs]
        with ReferenceModel(file, runtime=find_reference(graph.numerics)) as reference:
            theirs = [reference.run(row) for row in inputs]
    except (UnknownOperatorError, CrtExportError):
        return None
    ours = _exported(file, numerics, inputs)
    return [
        found for i in range(len(graph.outputs))
        if (found := _distances(*([row[i] for row in rows] for rows in (precise, ours, theirs))))
    ]


def _exported(file: Path, numerics: str, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    with tempfile.TemporaryDirectory() as folder:
        exported = crtexport.export(
            file, board="host", numerics=numerics, output=Path(folder) / "model.tar"
        )
        stacked = {
            tensor.field: np.stack([row[i] for row in inputs])
            for i, tensor in enumerate(exported.artifact.inputs)
        }
        rows = crtexport.simulate(exported.path, stacked, trust_package=True)
        return [[row[o.field] for o in exported.artifact.outputs] for row in rows]


def _distances(precise: list[Array], ours: list[Array], theirs: list[Array]) -> Distances | None:
    scale = max(float(np.abs(row[np.isfinite(row)]).max(initial=0.0)) for row in theirs)

    def apart(some: list[Array], others: list[Array]) -> float:
        x, y = np.stack(some).astype(np.float64), np.stack(others).astype(np.float64)
        with np.errstate(all="ignore"):
            found = np.where((x == y), 0.0, np.abs(x - y) / scale)
        return float(np.where(np.isnan(found), np.inf, found).max(initial=0.0))

    if apart(ours, theirs) <= FLOAT_TOLERANCE:
        return None
    return Distances(apart(ours, precise), apart(theirs, precise))
