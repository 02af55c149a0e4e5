"""Asks ONNX Runtime for the outputs of models: ``python answers.py FOLDER`` writes, for each
``NAME.onnx`` with its inputs in ``NAME.in.npz``, the outputs to ``NAME.out.npz``.

Run by the Python of an environment that has the package; crtexport needs none of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime


def main() -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
        try:
            session = onnxruntime.InferenceSession(path.read_bytes(), options)
            with np.load(path.with_suffix(".in.npz")) as given:
                outputs = session.run(None, {one.name: given[one.name]
                                             for one in session.get_inputs()})
        except Exception as error:
            raise SystemExit(f"{path.stem}: {error}") from error
        np.savez(path.with_suffix(".out.npz"), *outputs)


if __name__ == "__main__":
    main()
