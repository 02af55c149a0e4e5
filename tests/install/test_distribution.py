"""The facts of a release agree with each other, and the README can be read away from its files."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from crtexport.version import __version__
from tests.helpers import ROOT, require_module

SOURCE = "https://forge.example/us/crtexport"


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def for_pypi() -> Callable[[str, str | None], str]:
    require_module("hatchling")
    path = ROOT / project()["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]
    spec = importlib.util.spec_from_file_location("pypi_readme", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str, str | None], str] = module.for_pypi
    return found


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_of_the_readme_lead_to_files() -> None:
    own = [target for target in targets(readme()) if not target.startswith("https://")]
    assert own
    assert not [target for target in own if not (ROOT / target.partition("#")[0]).exists()]


def test_links_on_pypi_lead_to_the_repository(for_pypi: Callable[..., str]) -> None:
    text = for_pypi(readme(), SOURCE)
    assert f"]({SOURCE}/blob/HEAD/docs/cli.md)" in text
    assert all(target.startswith("https://") for target in targets(text))
    assert "<!--" not in text


def test_without_a_repository_there_are_no_links_to_files(for_pypi: Callable[..., str]) -> None:
    assert for_pypi("[a](b.md) [c](https://d) [e](#f)\n<!-- test\nx: 1\n-->\nend", None) == (
        "a [c](https://d) [e](#f)\nend"
    )


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "docs" / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert first is not None
    assert first[1] == __version__


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "docs" / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (__version__, project()["project"]["license"])
    assert {"cff-version", "message", "title", "authors", "type"} <= cited.keys()


def test_the_source_distribution_names_what_there_is() -> None:
    assert not [
        name for name in project()["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
        if not (ROOT / name).exists()
    ]
