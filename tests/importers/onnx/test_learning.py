"""Operators of ai.onnx.ml against what the standard says of them, in NumPy."""

from __future__ import annotations

import operator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtexport.importers import load
from crtexport.ir.graph import Graph
from crtexport.support.errors import CrtExportError
from tests.differential.network import Values, interpret, steps
from tests.importers.onnx.writer import graph, model, node, value

Array = npt.NDArray[Any]
RNG = np.random.default_rng(3)
X = RNG.normal(0, 1, (6, 4)).astype(np.float32)
COMPARED = {
    "BRANCH_LEQ": operator.le, "BRANCH_LT": operator.lt, "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt, "BRANCH_EQ": operator.eq, "BRANCH_NEQ": operator.ne,
}


def imported(folder: Path, kind: str, inputs: list[Array], outputs: int, **more: Any) -> Graph:
    path = folder / "model.onnx"
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" for i in range(outputs)]
    made = node(kind, names, results, domain="ai.onnx.ml", name="it", **more)
    given = [
        value(name, x.shape, x.dtype.name) for name, x in zip(names, inputs, strict=True)
    ]
    path.write_bytes(model(graph([made], given, results), domains=["ai.onnx.ml"]))
    return load(path)


def computed(
    folder: Path, kind: str, *inputs: Array, outputs: int = 1, **more: Any
) -> list[Array]:
    """Returns the outputs of a network of one node."""
    network = imported(folder, kind, [*inputs], outputs, **more)
    values: Values = dict(zip(network.inputs, inputs, strict=True))
    assert list(steps(network, values))
    return [values[tensor] for tensor in network.outputs]


@st.composite
def forests(draw: st.DrawFn) -> dict[str, list[Any]]:
    """The nodes_* lists of trees with all comparisons, on whole numbers so that they are equal
    now and then."""
    nodes: dict[str, list[Any]] = {
        key: [] for key in (
            "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
            "missing_value_tracks_true",
        )
    }
    for tree in range(draw(st.integers(1, 3))):
        inner, leaves = draw(st.integers(0, 5)), 1
        open_ids, following, rows = [0], 1, []
        for _ in range(inner):
            at = open_ids.pop(draw(st.integers(0, len(open_ids) - 1)))
            pair = (following, following + 1)
            following += 2
            open_ids += pair
            leaves += 1
            mode = draw(st.sampled_from(sorted(COMPARED)))
            limit, feature = draw(st.integers(-2, 2)), draw(st.integers(0, 3))
            rows.append((tree, at, feature, float(limit), mode, *pair, draw(st.integers(0, 1))))
        rows += [(tree, at, 0, 0.0, "LEAF", 0, 0, 0) for at in open_ids]
        for row in draw(st.permutations(rows)):
            for key, cell in zip(nodes, row, strict=True):
                nodes[key].append(cell)
    return nodes


def reached(nodes: dict[str, list[Any]], row: Array) -> list[tuple[int, int]]:
    """Returns the leaf of each tree, as the standard describes the way to it."""
    table = {(r[0], r[1]): r for r in zip(*nodes.values(), strict=True)}
    found = []
    for tree in sorted(set(nodes["treeids"])):
        at = 0
        while True:
            _, _, feature, limit, mode, true, false, missing = table[tree, at]
            if mode == "LEAF":
                break
            x = row[feature]
            at = true if COMPARED[mode](x, limit) or (missing and np.isnan(x)) else false
        found.append((tree, at))
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(forests(), st.integers(0, 99))
def test_trees_sum_the_leaves_that_comparisons_lead_to(
    tmp_path: Path, nodes: dict[str, list[Any]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (8, 4)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    names = [
        (r[0], r[1]) for r in zip(*nodes.values(), strict=True) if r[4] == "LEAF"
    ]
    weights = {(*name, k): float(rng.integers(-8, 9)) / 4 for name in names for k in range(2)}
    columns = list(zip(*weights, strict=True))
    (found,) = computed(
        tmp_path, "TreeEnsembleRegressor", x, n_targets=2, base_values=[0.5, -0.25],
        **{f"nodes_{key}": cells for key, cells in nodes.items()},
        target_treeids=columns[0], target_nodeids=columns[1], target_ids=columns[2],
        target_weights=list(weights.values()),
    )
    wanted = [
        [b + sum(weights[*leaf, k] for leaf in reached(nodes, row))
         for k, b in enumerate((0.5, -0.25))]
        for row in x
    ]
    np.testing.assert_array_equal(found, wanted)


STUMP = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0],
    "class_nodeids": [1, 2],
}


def test_one_score_decides_between_two_classes(tmp_path: Path) -> None:
    labels, scores = computed(
        tmp_path, "TreeEnsembleClassifier", X, outputs=2, **STUMP, class_ids=[0, 0],
        class_weights=[0.25, 0.75], classlabels_int64s=[7, 3],
    )
    over = X[:, 1] > 0
    np.testing.assert_array_equal(labels, np.where(over, 3, 7))
    part = np.where(over, 0.75, 0.25)
    np.testing.assert_array_equal(scores, np.stack([1 - part, part], 1))


def test_labels_that_are_strings_become_positions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels, _ = computed(
        tmp_path, "TreeEnsembleClassifier", X, outputs=2, **STUMP, class_ids=[0, 2],
        class_weights=[1.0, 1.0], classlabels_strings=["cat", "dog", "fox"],
    )
    np.testing.assert_array_equal(labels, np.where(X[:, 1] > 0, 2, 0))
    assert "labels are strings: the label of 'it' is their position" in caplog.text


@pytest.mark.parametrize("child", [2, 5])
def test_trees_that_hang_loose_are_refused(tmp_path: Path, child: int) -> None:
    problem = r"'it' \(TreeEnsembleClassifier\): tree 0 has 2 roots"
    with pytest.raises(CrtExportError, match=problem):
        imported(
            tmp_path, "TreeEnsembleClassifier", [X], 2,
            **{**STUMP, "nodes_truenodeids": [child, 0, 0]}, class_ids=[0, 1],
            class_weights=[1.0, 1.0], classlabels_int64s=[0, 1],
        )


MEMBERS: dict[str, Any] = {
    "nodes_modes": np.array([6, 0], np.uint8), "nodes_featureids": [0, 1],
    "nodes_splits": np.array([0, 0.5], np.float32), "nodes_truenodeids": [1, 2],
    "nodes_trueleafs": [0, 1], "nodes_falsenodeids": [0, 1], "nodes_falseleafs": [1, 1],
    "membership_values": np.array([1, 4, np.nan], np.float32), "tree_roots": [0],
    "leaf_targetids": [0, 1, 0], "leaf_weights": np.array([1, 2, 3], np.float32), "n_targets": 2,
}


def test_trees_look_for_members(tmp_path: Path) -> None:
    x = np.array([(4, 0), (1, 9), (2, 0), (np.nan, 0)], np.float32)
    (found,) = computed(tmp_path, "TreeEnsemble", x, **MEMBERS)
    np.testing.assert_array_equal(found, [(3, 0), (0, 2), (1, 0), (1, 0)])


def test_trees_that_go_in_circles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrtExportError, match="the trees go in circles"):
        imported(
            tmp_path, "TreeEnsemble", [X], 1,
            **{**MEMBERS, "nodes_truenodeids": [0, 0], "nodes_trueleafs": [0, 0]},
        )


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    found: Array = powers / powers.sum(1, keepdims=True)
    return found


def test_linear_classifier_takes_the_largest_score(tmp_path: Path) -> None:
    weights, bias = RNG.normal(0, 1, (3, 4)), RNG.normal(0, 1, 3)
    labels, scores = computed(
        tmp_path, "LinearClassifier", X, outputs=2, coefficients=weights.ravel().tolist(),
        intercepts=bias.tolist(), classlabels_ints=[4, 2, 9], post_transform="SOFTMAX",
    )
    raw = X @ weights.T + bias
    np.testing.assert_array_equal(labels, np.array([4, 2, 9])[raw.argmax(1)])
    np.testing.assert_allclose(scores, _softmax(raw), rtol=1e-5)


KERNELS = {
    "LINEAR": lambda x, v: x @ v.T,
    "POLY": lambda x, v: (0.5 * (x @ v.T) + 1) ** 3,
    "RBF": lambda x, v: np.exp(-0.5 * ((x[:, None] - v[None]) ** 2).sum(2)),
    "SIGMOID": lambda x, v: np.tanh(0.5 * (x @ v.T) + 1),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vectors_vote_for_classes_in_pairs(tmp_path: Path, kernel: str) -> None:
    sizes, vectors = [2, 3, 1], RNG.normal(0, 1, (6, 4))
    weights, rho = RNG.normal(0, 1, (2, 6)), RNG.normal(0, 0.1, 3)
    labels, scores = computed(
        tmp_path, "SVMClassifier", X, outputs=2, kernel_type=kernel, classlabels_ints=[0, 1, 2],
        kernel_params=[0.5, 1.0, 3.0], vectors_per_class=sizes, rho=rho.tolist(),
        support_vectors=vectors.ravel().tolist(), coefficients=weights.ravel().tolist(),
    )
    of, near = np.repeat(range(3), sizes), KERNELS[kernel](X, vectors)
    votes, wanted = np.zeros((len(X), 3)), []
    for number, (i, j) in enumerate(combinations(range(3), 2)):
        decision = rho[number] + near[:, of == i] @ weights[j - 1, of == i]
        decision = decision + near[:, of == j] @ weights[i, of == j]
        votes[np.arange(len(X)), np.where(decision > 0, i, j)] += 1
        wanted.append(decision)
    np.testing.assert_array_equal(labels, votes.argmax(1))
    np.testing.assert_allclose(scores, np.stack(wanted, 1), rtol=1e-4, atol=1e-5)


def test_votes_decide_and_probabilities_are_found_for_all_classes(tmp_path: Path) -> None:
    """Two classes: near 0 the probability, 1 / (1 + exp(a · decision + b)), prefers the first class
    where the decision is for the second. Its steps end when they are small, as in libsvm."""
    vectors = RNG.normal(0, 1, (4, 4))
    weights, a, b = RNG.normal(0, 1, 4), -1.5, -0.75
    labels, found = computed(
        tmp_path, "SVMClassifier", X, outputs=2, kernel_type="LINEAR", classlabels_ints=[3, 8],
        vectors_per_class=[1, 3], rho=[0.1], support_vectors=vectors.ravel().tolist(),
        coefficients=weights.tolist(), prob_a=[a], prob_b=[b], kernel_params=[0.0, 0.0, 0.0],
    )
    decision = X @ vectors.T @ weights + 0.1
    first = 1 / (1 + np.exp(a * decision + b))
    np.testing.assert_array_equal(labels, np.where(decision > 0, 3, 8))
    np.testing.assert_allclose(found, np.stack([first, 1 - first], 1), rtol=0, atol=0.005)
    assert ((decision > 0) != (first > 0.5)).any()


def test_support_vectors_give_numbers(tmp_path: Path) -> None:
    vectors, weights = RNG.normal(0, 1, (5, 4)), RNG.normal(0, 1, 5)
    (found,) = computed(
        tmp_path, "SVMRegressor", X, kernel_type="RBF", kernel_params=[0.5, 0.0, 0.0],
        n_supports=5, support_vectors=vectors.ravel().tolist(), coefficients=weights.tolist(),
        rho=[0.25],
    )
    wanted = KERNELS["RBF"](X, vectors) @ weights + 0.25
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-4, atol=1e-5)


ZERO_ROW = np.where(np.arange(6)[:, None] == 2, 0, X).astype(np.float32)
GONE = np.where(X > 1, np.nan, X).astype(np.float32)
KEYS = np.array([1, 5, 9, 2], np.int64)
SIMPLE: dict[str, tuple[str, dict[str, Any], Array, Array]] = {
    "scaler": (
        "Scaler", {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [2.0, 1.0, 0.5, 3.0]}, X,
        (X - [1, 2, 3, 4]) * [2, 1, 0.5, 3],
    ),
    "L1 norm": (
        "Normalizer", {"norm": "L1"}, ZERO_ROW,
        ZERO_ROW / np.where(np.arange(6) == 2, 1, np.abs(ZERO_ROW).sum(1))[:, None],
    ),
    "L2 norm": ("Normalizer", {"norm": "L2"}, X, X / np.linalg.norm(X, axis=1)[:, None]),
    "largest": ("Normalizer", {"norm": "MAX"}, X, X / X.max(1)[:, None]),
    "binarizer": ("Binarizer", {"threshold": 0.25}, X, X > 0.25),
    "imputer": (
        "Imputer", {"imputed_value_floats": [9.0, 8.0, 7.0, 6.0],
                    "replaced_value_float": float("nan")}, GONE,
        np.where(np.isnan(GONE), [9, 8, 7, 6], GONE),
    ),
    "imputer of whole numbers": (
        "Imputer", {"imputed_value_int64s": [7], "replaced_value_int64": 5}, KEYS,
        np.array([1, 7, 9, 2]),
    ),
    "labels": (
        "LabelEncoder", {"keys_int64s": [1, 2, 5], "values_floats": [0.5, 0.25, 7.0],
                         "default_float": -3.0}, KEYS, np.array([0.5, 7, -3, 0.25]),
    ),
    "labels without a default": (
        "LabelEncoder", {"keys_int64s": [1, 2, 5], "values_int64s": [4, 8, 6]}, KEYS,
        np.array([4, 6, -1, 8]),
    ),
    "one of three": (
        "OneHotEncoder", {"cats_int64s": [1, 2, 5]}, KEYS,
        KEYS[:, None] == np.array([1, 2, 5]),
    ),
    "linear regression": (
        "LinearRegressor", {"coefficients": [1.0, -2.0, 0.5, 0.25], "intercepts": [0.5]}, X,
        (X @ [1, -2, 0.5, 0.25] + 0.5)[:, None],
    ),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_operator_gives_what_the_standard_says(name: str, tmp_path: Path) -> None:
    kind, attributes, x, wanted = SIMPLE[name]
    (found,) = computed(tmp_path, kind, x, **attributes)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_scores_take_the_place_of_maps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = imported(tmp_path, "ZipMap", [X], 1, classlabels_int64s=[0, 1, 2, 3])
    assert network.type(network.outputs[0]).shape == X.shape
    assert "ZipMap is left out: 'y0' has the scores" in caplog.text


@pytest.mark.parametrize("axis", [1, 0])
def test_distances_to_many_samples_are_one_operator(tmp_path: Path, axis: int) -> None:
    """As skl2onnx writes nearest-neighbour models; a body with another axis is no such one."""
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 1, (1500 if axis else 6, 3)).astype(np.float32)
    body = graph(
        [
            node("Identity", ["rows"], ["kept"]), node("Sub", ["rows", "sample"], ["d"]),
            node("ReduceSumSquare", ["d"], ["sum"], axes=[axis], keepdims=0),
            node("Identity", ["sum"], ["distance"]),
        ],
        [value("rows", (2, 3)), value("sample", (3,))], ["kept", "distance"],
    )
    scan = node("Scan", ["x", "samples"], ["same", "y"], num_scan_inputs=1, body=body)
    path = tmp_path / "model.onnx"
    path.write_bytes(model(graph(
        [scan], [value("x", (2, 3))], ["y"], {"samples": samples}
    ), version=13))
    network = load(path)
    assert (len(network.nodes) == 1) is (axis == 1)
    x = rng.normal(0, 1, (2, 3)).astype(np.float32)
    (found,) = interpret(network, [x])
    np.testing.assert_allclose(found, ((x - samples[:, None]) ** 2).sum(1 + axis), rtol=1e-5)
