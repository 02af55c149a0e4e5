"""Makes models of descriptions in onnx's syntax: weights are drawn, and ONNX Runtime runs them.

``python described.py DESCRIPTIONS FOLDER COUNT``, in an environment with onnx and onnxruntime,
writes a model for each, ``COUNT`` inputs (``.in.npz``) and ONNX Runtime's outputs (``.out.npz``).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser


def with_weights(text: str, rng: np.random.Generator) -> onnx.ModelProto:
    """Returns the model; sums of products with its weights are about as large as their inputs."""
    model = parser.parse_model(text)
    for info in model.graph.value_info:
        shape = [one.dim_value for one in info.type.tensor_type.shape.dim]
        if len(shape) == 1:  # among them variances, which are positive
            values = rng.uniform(0.1, 1, shape)
        else:
            values = rng.normal(0, 1.4 / np.sqrt(np.prod(shape[1:])), shape)
        tensor = numpy_helper.from_array(values.astype(np.float32), info.name)
        model.graph.initializer.append(tensor)
    del model.graph.value_info[:]
    return model


def main() -> None:
    folder, count = Path(sys.argv[2]), int(sys.argv[3])
    for number, path in enumerate(sorted(Path(sys.argv[1]).glob("*.txt"))):
        rng = np.random.default_rng(number)
        model = with_weights(path.read_text(), rng)
        onnx.save(model, folder / f"{path.stem}.onnx")
        session = onnxruntime.InferenceSession(model.SerializeToString())
        feeds = {
            one.name: rng.normal(size=(count, *one.shape)).astype(np.float32)
            for one in session.get_inputs()
        }
        rows = [session.run(None, {k: v[i] for k, v in feeds.items()}) for i in range(count)]
        names = [one.name for one in session.get_outputs()]
        np.savez(folder / f"{path.stem}.in.npz", **feeds)
        np.savez(folder / f"{path.stem}.out.npz", **{
            name: np.stack([row[i] for row in rows]) for i, name in enumerate(names)
        })


if __name__ == "__main__":
    main()
