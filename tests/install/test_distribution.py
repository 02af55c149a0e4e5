"""The facts of a release agree with each other, and the README can be read away from its files."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from crtexport.version import __version__
from tests.helpers import ROOT, require_module
from tests.install.pythons import MINORS

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


def test_the_versions_of_python_are_those_that_installations_are_tried_on() -> None:
    facts = project()["project"]
    named = re.findall(r"Python :: 3\.(\d+)$", "\n".join(facts["classifiers"]), re.MULTILINE)
    assert facts["requires-python"] == f">=3.{MINORS[0]}"
    assert list(map(int, named)) == [*MINORS[: len(named)]]


def imported() -> dict[str, set[str]]:
    """The modules of others that the package imports at any time, and the files that do."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "crtexport").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
            for name in (name.partition(".")[0] for name in names):
                if name not in {"", "crtexport", *sys.stdlib_module_names}:
                    found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_a_plain_install_has_what_every_command_needs_and_extras_the_rest() -> None:
    def named(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=!~ ]", text)[0] for text in requirements}

    facts = project()["project"]
    plain = named(facts["dependencies"])
    extras = {name: named(those) for name, those in facts["optional-dependencies"].items()}
    of = {
        "google_crc32c": "google-crc32c", "elftools": "pyelftools", "yaml": "pyyaml",
        "tflite_runtime": "tflite-runtime", "ai_edge_litert": "ai-edge-litert",
        "tflite_micro": "tflite-micro", "ai_edge_quantizer": "ai-edge-quantizer",
    }
    for module, files in imported().items():
        package = of.get(module, module)
        if package in plain:
            continue
        those = [name for name in extras if name not in ("dev", "docs") and package in extras[name]]
        assert those or package == "markupsafe", (module, files)  # which Jinja brings and needs
    assert "west" in plain
    assert not plain & {"devicetree", "pykwalify", "matplotlib", "ethos-u-vela", "kconfiglib"}
