"""Runs some tests of onnx, their code compiled together; prints what became of each, as JSON.

A process of its own: what crashes takes no other batch with it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtexport import package_actions
from crtexport.firmware.board import load_board
from crtexport.importers import load
from crtexport.importers.formats import InputChoices
from crtexport.ir.graph import Graph
from crtexport.pipeline import driver
from crtexport.support.errors import CrtExportError
from tests.onnx.suite import Case, fed, model_of, steering, written

Arrays = dict[str, npt.NDArray[Any]]


def imported(case: Case, folder: Path) -> tuple[Graph, Arrays]:
    """Returns the network of a test, and its inputs by name."""
    info = model_of(case.model)
    given = dict(zip(fed(info), case.arrays("in"), strict=False))
    bound = steering(info) & given.keys()
    values = {}
    for number, name in enumerate(sorted(bound)):
        values[name] = folder / f"{case.name}.{number}.npy"
        np.save(values[name], given[name])
    shapes = {name: array.shape for name, array in given.items() if name not in bound}
    graph = load(case.model, choices=InputChoices(shapes=shapes, values=values))
    return graph, {name: array for name, array in given.items() if name not in bound}


def differs(case: Case, found: Sequence[npt.NDArray[Any]]) -> str:
    """Returns how the outputs differ from the test's; "" where they don't."""
    expected = case.arrays("out")
    if case.operator == "NonMaxSuppression" and len(found) == 1:
        # As many rows as there can be, of which those that are left are -1.
        rows = len(expected[0])
        if not (found[0][rows:] == -1).all():
            return f"rows beyond the {rows} that are chosen: {found[0].tolist()}"
        found = [found[0][:rows]]
    if len(found) != len(expected):
        return f"{len(found)} outputs, not {len(expected)}"
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"output {number} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        try:
            np.testing.assert_allclose(ours, theirs, rtol=case.rtol, atol=case.atol)
        except AssertionError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            return f"output {number}: {'; '.join(lines[1:4])}"
    return ""


def run(cases: Sequence[Case], emit: driver.Emit) -> dict[str, list[str]]:
    """Returns for each test "passed", "refused" or "wrong", and the reason."""
    results: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="nodes-") as place:
        folder = Path(place)
        graphs: dict[str, tuple[Case, Graph, Arrays]] = {}
        for case in cases:
            with _told(case, results):
                graphs[f"m{len(graphs)}"] = (case, *imported(case, folder))
        try:
            return results | _together(graphs, folder, emit)
        except Exception:  # of some, which are found by planning each alone
            board = load_board("host")
            for module, (case, graph, _) in [*graphs.items()]:
                with _told(case, results):
                    driver.prepare(graph, board)
                if case.name in results:
                    del graphs[module]
            return results | _together(graphs, folder, emit)


@contextlib.contextmanager
def _told(case: Case, results: dict[str, list[str]]) -> Iterator[None]:
    """Notes what becomes of a test that can't be read or planned."""
    try:
        yield
    except CrtExportError as error:
        results[case.name] = ["refused", str(error).splitlines()[0]]
    except Exception as error:
        results[case.name] = ["broken", f"{type(error).__name__}: {error}"]


def _together(
    graphs: dict[str, tuple[Case, Graph, Arrays]], folder: Path, emit: driver.Emit
) -> dict[str, list[str]]:
    if not graphs:
        return {}
    package = folder / "nodes.tar"
    exported = driver.export(
        [graph for _, graph, _ in graphs.values()], board="host", output=package, emit=emit,
        module_name=list(graphs),
    )
    single = len(graphs) == 1
    inputs = {
        name if single else f"{module}/{name}": array
        for module, (_, _, given) in graphs.items() for name, array in given.items()
    }
    if single:
        (module,) = graphs
        found = {module: package_actions.simulate(package, inputs, trust_package=True)}
    else:
        found = package_actions.simulate_all(package, inputs, trust_package=True)
    results = {}
    for (module, (case, _, _)), model in zip(graphs.items(), exported.models, strict=True):
        row = found[module][0]
        wrong = differs(case, [row[o.field] for o in model.artifact.outputs])
        results[case.name] = ["wrong", wrong] if wrong else ["passed", ""]
    return results


def main() -> None:
    folder, emit, *names = sys.argv[1:]
    cases = {case.name: case for case in written(Path(folder))}
    results = run([cases[name] for name in names], "llvm" if emit == "llvm" else "c")
    sys.stdout.write(f"{json.dumps(results)}\n")


if __name__ == "__main__":
    main()
