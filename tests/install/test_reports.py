"""Differences between environments are seen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.install.reports import problems

OURS: dict[str, Any] = {
    "boards": [{"name": "host"}],
    "results": {"net c": {"package": "ab", "outputs": [[1, 2]]}},
}


def changed(**result: Any) -> dict[str, Any]:
    report = copy.deepcopy(OURS)
    report["results"]["net c"] = result
    return report


def test_the_same_everywhere_is_no_problem() -> None:
    assert problems(copy.deepcopy(OURS), OURS, {"net": {"out": [1, 2]}, "other": {"out": []}}) == {}


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (changed(error="OSError: no"), "OSError: no"),
        (changed(package="ab", outputs=[[1, 3]]), "other outputs than in"),
        (changed(package="cd", outputs=[[1, 2]]), "another package"),
        ({**OURS, "results": {}}, "was not tried"),
    ],
)
def test_each_difference_is_named(report: dict[str, Any], problem: str) -> None:
    (found,) = problems(report, OURS, {}).items()
    assert found[0] == "net c"
    assert problem in found[1]


def test_outputs_that_devices_did_not_give_are_wrong_though_all_environments_agree() -> None:
    assert problems(OURS, OURS, {"net": {"out": [1, 1]}}) == {
        "net c": "other outputs than those recorded on devices"
    }


def test_a_wheel_without_its_boards_is_seen() -> None:
    assert problems({**OURS, "boards": []}, OURS, {}).keys() == {"boards"}
