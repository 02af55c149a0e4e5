"""Compares the probe's findings in one environment with those that it must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Any]


def problems(report: Report, ours: Report, recorded: Mapping[str, Any]) -> dict[str, str]:
    """Returns what is wrong with each result of ``report``; empty where nothing is.

    ``ours`` is the report of the environment of the tests: packages are the same bytes everywhere,
    and so are outputs. ``recorded`` has the outputs (``out``) that networks gave on devices.
    """
    found = {
        name: problem
        for name, wanted in ours["results"].items()
        if (problem := _problem(name, report["results"].get(name), wanted, recorded))
    }
    if report["boards"] != ours["boards"]:
        found["boards"] = "other boards than in the environment of the tests"
    return found


def _problem(
    name: str, result: Mapping[str, Any] | None, wanted: Mapping[str, Any],
    recorded: Mapping[str, Any],
) -> str:
    if result is None:
        return "was not tried"
    if "error" in result:
        return str(result["error"])
    network = name.partition(" ")[0]
    if network in recorded and result["outputs"] != [recorded[network]["out"]]:
        return "other outputs than those recorded on devices"
    if result["outputs"] != wanted.get("outputs"):
        return "other outputs than in the environment of the tests"
    if result["package"] != wanted.get("package"):
        return "another package than in the environment of the tests"
    return ""
