"""Draws single nodes of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.onnx.draws import Array, Draw, DrawnNode

LEARNING = "ai.onnx.ml"


def _node(operator: str, inputs: list[Array | None], attributes: dict[str, Any],
          outputs: int = 1, version: int = 3) -> DrawnNode:
    computed = tuple(i for i, x in enumerate(inputs) if x is not None and x.dtype != np.int64)
    return DrawnNode(operator, inputs, attributes, computed or (0,), outputs, LEARNING, version)


def _rows(d: Draw) -> Array:
    return d.floats((d.between(1, 5), d.between(2, 5)))


def _reals(d: Draw, count: int) -> list[float]:
    """Some of which are 0 or 1."""
    return [d.one(0.0, 1.0, float(x)) for x in d.floats((count,))]


def scaler(d: Draw) -> DrawnNode:
    x = _rows(d)
    return _node("Scaler", [x], {
        "offset": _reals(d, x.shape[1]), "scale": _reals(d, x.shape[1]),
    })


def normalizer(d: Draw) -> DrawnNode:
    return _node("Normalizer", [np.abs(_rows(d)) + 1], {"norm": d.one("MAX", "L1", "L2")})


def linear_regressor(d: Draw) -> DrawnNode:
    x, targets = _rows(d), d.between(1, 3)
    attributes: dict[str, Any] = {
        "coefficients": _reals(d, targets * x.shape[1]), "targets": targets,
    }
    if d.maybe():
        attributes["intercepts"] = _reals(d, targets)
    return _node("LinearRegressor", [x], attributes)


def _labels(d: Draw, classes: int) -> list[int]:
    return [int(label) for label in d.rng.permutation(9)[:classes]]


def linear_classifier(d: Draw) -> DrawnNode:
    x, classes = _rows(d), d.between(2, 4)
    rows = 1 if classes == 2 and d.maybe() else classes
    return _node("LinearClassifier", [x], {
        "coefficients": _reals(d, rows * x.shape[1]), "intercepts": _reals(d, rows),
        "classlabels_ints": _labels(d, classes),
        "post_transform": d.one("NONE", "LOGISTIC") if rows == 1 else (
            d.one("NONE", "LOGISTIC", "SOFTMAX")
        ),
    }, outputs=2)


def extractor(d: Draw) -> DrawnNode:
    x = _rows(d)
    return _node("ArrayFeatureExtractor", [x, d.integers(0, x.shape[1] - 1, (d.between(1, 4),))],
                 {})


def binarizer(d: Draw) -> DrawnNode:
    return _node("Binarizer", [_rows(d)], {"threshold": d.one(0.0, 0.3)})


def imputer(d: Draw) -> DrawnNode:
    x = np.rint(_rows(d)).astype(np.float32)
    missing = d.one(1.0, float("nan"))
    x[x == 1] = missing
    return _node("Imputer", [x], {
        "imputed_value_floats": _reals(d, d.one(1, x.shape[1])), "replaced_value_float": missing,
    })


def label_encoder(d: Draw) -> DrawnNode:
    keys = [int(key) for key in d.rng.permutation(9)[: d.between(1, 5)]]
    x = d.integers(0, 9, d.shape(d.between(1, 3)), np.float32)
    return _node("LabelEncoder", [x], {
        "keys_floats": [float(key) for key in keys], "values_floats": _reals(d, len(keys)),
        "default_float": d.one(-1.5, 0.0),
    })


def one_hot_encoder(d: Draw) -> DrawnNode:
    x = d.integers(0, 9, d.shape(d.between(1, 2)), np.float32)
    cats = [int(cat) for cat in d.rng.permutation(9)[: d.between(1, 5)]]
    return _node("OneHotEncoder", [x], {"cats_int64s": cats, "zeros": 1})


def svm_regressor(d: Draw) -> DrawnNode:
    x, vectors = _rows(d), d.between(1, 4)
    kind = d.one("LINEAR", "RBF", "POLY", "SIGMOID")
    return _node("SVMRegressor", [x], {
        "kernel_type": kind, "kernel_params": [0.3, 0.7, float(d.between(1, 3))],
        "support_vectors": _reals(d, vectors * x.shape[1]), "n_supports": vectors,
        "coefficients": _reals(d, vectors), "rho": _reals(d, 1), "one_class": d.between(0, 1),
    })


def svm_classifier(d: Draw) -> DrawnNode:
    x, classes = _rows(d), d.between(2, 4)
    sizes = [d.between(1, 3) for _ in range(classes)]
    count, pairs = sum(sizes), classes * (classes - 1) // 2
    # Probabilities are not asked for: ONNX Runtime finds those of two classes by trial.
    return _node("SVMClassifier", [x], {
        "kernel_type": d.one("LINEAR", "RBF", "POLY", "SIGMOID"),
        "kernel_params": [0.3, 0.7, float(d.between(1, 3))],
        "support_vectors": _reals(d, count * x.shape[1]), "vectors_per_class": sizes,
        "coefficients": [float(c) for c in d.floats(((classes - 1) * count,))],
        "rho": [float(r) for r in d.floats((pairs,))], "classlabels_ints": _labels(d, classes),
    }, outputs=2)


def _forest(d: Draw, features: int) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:
    """The lists nodes_… of one to three trees, and the names of their leaves."""
    nodes: dict[str, list[Any]] = {
        f"nodes_{name}": [] for name in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids"
        )
    }
    leaves = []
    for tree in range(d.between(1, 3)):
        waiting, following = [0], 1
        for _ in range(d.between(0, 4)):
            at = waiting.pop(d.between(0, len(waiting) - 1))
            waiting += [following, following + 1]
            row = (tree, at, d.between(0, features - 1), float(d.floats(())),
                   d.one("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"),
                   following, following + 1)
            following += 2
            for cells, cell in zip(nodes.values(), row, strict=True):
                cells.append(cell)
        for at in waiting:
            leaves.append((tree, at))
            for cells, cell in zip(
                nodes.values(), (tree, at, 0, 0.0, "LEAF", 0, 0), strict=True
            ):
                cells.append(cell)
    return nodes, leaves


def _as_tensors(d: Draw, attributes: dict[str, Any], *names: str) -> dict[str, Any]:
    """Floats as they are, or each list as a tensor of its own."""
    if d.maybe():
        return attributes
    changed = {k: v for k, v in attributes.items() if k not in names}
    return changed | {
        f"{name}_as_tensor": np.array(attributes[name], np.float32) for name in names
        if name in attributes
    }


def tree_regressor(d: Draw) -> DrawnNode:
    x, targets = _rows(d), d.between(1, 3)
    nodes, leaves = _forest(d, x.shape[1])
    rows = [(*leaf, target) for leaf in leaves for target in range(targets)]
    attributes = {
        **nodes, "n_targets": targets, "aggregate_function": d.one("SUM", "AVERAGE", "MIN", "MAX"),
        "target_treeids": [row[0] for row in rows], "target_nodeids": [row[1] for row in rows],
        "target_ids": [row[2] for row in rows], "target_weights": _reals(d, len(rows)),
        # ONNX Runtime leaves it out where there is one target.
        "post_transform": d.one("NONE", "LOGISTIC") if targets > 1 else "NONE",
    }
    if d.maybe():
        attributes["base_values"] = _reals(d, targets)
    tensors = ("nodes_values", "target_weights", "base_values")
    return _node("TreeEnsembleRegressor", [x], _as_tensors(d, attributes, *tensors))


def tree_classifier(d: Draw) -> DrawnNode:
    x, classes = _rows(d), d.between(2, 4)
    nodes, leaves = _forest(d, x.shape[1])
    # Of two classes converters write the second's scores alone; of both, ONNX Runtime takes the
    # second wherever its score is positive.
    scored = range(classes) if classes > 2 else (1,)
    rows = [(*leaf, number) for leaf in leaves for number in scored]
    return _node("TreeEnsembleClassifier", [x], {
        **nodes, "class_treeids": [row[0] for row in rows],
        "class_nodeids": [row[1] for row in rows], "class_ids": [row[2] for row in rows],
        "class_weights": [float(w) for w in np.abs(d.floats((len(rows),)))],
        "classlabels_int64s": _labels(d, classes),
        "post_transform": d.one("NONE", "LOGISTIC", "SOFTMAX") if classes > 2 else "NONE",
    }, outputs=2)


DRAWS: tuple[Callable[[Draw], DrawnNode], ...] = (
    scaler, normalizer, linear_regressor, linear_classifier, extractor, binarizer, imputer,
    label_encoder, one_hot_encoder, svm_regressor, svm_classifier, tree_regressor,
    tree_classifier,
)
