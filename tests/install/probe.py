"""Exports and simulates networks with the crtexport that is installed; a script for any Python.

``python probe.py FOLDER MODEL...`` prints one line of JSON: where crtexport is, which versions it
runs with, how many boards it knows, and for each model and kind of code the package's SHA-256 and
the outputs, or the error. Packages are written into ``FOLDER``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import platform
import sys
import warnings
from pathlib import Path
from typing import Any


def command(*arguments: str) -> str:
    """Returns what ``crtexport ARGUMENTS`` prints. Raises RuntimeError if it fails."""
    from crtexport.cli.main import main

    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        status = main(list(arguments))
    if status:
        raise RuntimeError(f"crtexport {' '.join(arguments)}: {status}: {said.getvalue()}")
    return printed.getvalue()


def tried(model: Path, emit: str, folder: Path) -> dict[str, Any]:
    """Returns what one export gave."""
    import numpy as np

    package, outputs = folder / f"{model.stem}-{emit}.tar", folder / f"{model.stem}-{emit}.npz"
    try:
        command("export", str(model), "--board", "host", "--emit", emit, "-o", str(package))
        command("simulate", str(package), "--output", str(outputs))
        with np.load(outputs) as arrays:
            values = [arrays[name].ravel().tolist() for name in arrays.files]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"package": hashlib.sha256(package.read_bytes()).hexdigest(), "outputs": values}


def main() -> None:
    """All models; a warning, which users would see, is a mistake."""
    warnings.simplefilter("error")
    import crtexport

    folder, models = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    report = {
        "where": crtexport.__file__,
        "python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "boards": json.loads(command("boards", "--json")),
        "results": {
            f"{model.stem} {emit}": tried(model, emit, folder)
            for model in models for emit in ("c", "llvm")
        },
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
