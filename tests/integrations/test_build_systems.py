"""PlatformIO and ESP-IDF's component manager, as PyPI has them, take what is written for them.

PlatformIO downloads its platforms, and this test has one of its own for this computer; its build
tool SCons is in PyPI. Neither asks a network for anything.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from crtexport import write_library
from tests.helpers import require, require_environment
from tests.integrations.test_libraries import package

BUILDER = """\
from SCons.Script import Default, DefaultEnvironment

env = DefaultEnvironment()
env.Replace(PROGNAME="program")
program = env.BuildProgram()
env.AddPlatformTarget("exec", program, env.VerboseAction("$SOURCE", "run"), "Execute")
Default([program])
"""
PLATFORM = """\
from platformio.public import PlatformBase


class NativePlatform(PlatformBase):
    pass
"""
MANIFEST = """\
import sys
from platformio.package.manifest.parser import ManifestParserFactory
from platformio.package.manifest.schema import ManifestSchema

known = {"licenses": [{"licenseId": "Apache-2.0"}]}  # else it downloads the list of all
ManifestSchema.load_spdx_licenses = staticmethod(lambda: known)
data = ManifestParserFactory.new_from_file(sys.argv[1]).as_dict()
print(ManifestSchema().load_manifest(data)["name"])
"""


@pytest.fixture(scope="module")
def python() -> str:
    return require_environment("buildsystems", "platformio", "SCons", "idf_component_manager")


@pytest.fixture(scope="module")
def core(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PlatformIO's folder, with the platform ``native`` and SCons."""
    core = tmp_path_factory.mktemp("core")
    wanted = run(python, "-c", (
        "from platformio.dependencies import get_core_dependencies as d; print(d()['tool-scons'])"
    )).strip()
    places = {
        "packages/tool-scons": ("tool", "tool-scons", wanted.lstrip("~^")),
        "platforms/native": ("platform", "native", "1.2.1"),
    }
    for place, (kind, name, version) in places.items():
        folder = core / place
        folder.mkdir(parents=True)
        spec = {"owner": "platformio", "id": None, "name": name, "requirements": None, "uri": None}
        found = {"type": kind, "name": name, "version": version, "spec": spec}
        (folder / ".piopm").write_text(json.dumps(found))
        described = {"name": name, "version": version, "description": name}
        (folder / ("package.json" if kind == "tool" else "platform.json")).write_text(json.dumps(
            described if kind == "tool" else {**described, "title": name, "packages": {}}
        ))
    (core / "packages/tool-scons/scons.py").write_text("from SCons.Script import main\nmain()\n")
    (core / "platforms/native/platform.py").write_text(PLATFORM)
    (core / "platforms/native/builder").mkdir()
    (core / "platforms/native/builder/main.py").write_text(BUILDER)
    return core


def run(*words: str | Path, core: Path | None = None, folder: Path | None = None) -> str:
    variables = {} if core is None else {
        "PLATFORMIO_CORE_DIR": str(core), "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "no",
        "CI": "true",  # it doesn't ask for newer releases of itself then
    }
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env={**os.environ, **variables}, text=True,
        capture_output=True, check=False, timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["floats", "several"])
def test_platformio_builds_the_example_with_the_library(
    kind: str, python: str, core: Path, tmp_path: Path
) -> None:
    """And with this library alone, whatever lies beside it."""
    require("g++")
    library = tmp_path / "library"
    write_library(package(kind), library, "platformio")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "broken.c").write_text("#error this is no part of the project")
    said = run(python, "-m", "platformio", "run", "-d", library / "examples" / "run", core=core)
    assert "Found 1 compatible libraries" in said
    (program,) = library.rglob("program")
    assert run(program).splitlines()[-1] == "PASS"


def test_platformio_knows_all_that_a_librarys_description_says(
    python: str, tmp_path: Path
) -> None:
    write_library(package("several"), tmp_path, "platformio")
    assert run(python, "-c", MANIFEST, tmp_path / "library.json").startswith("crtexport_")


def test_the_example_has_an_environment_for_the_board(
    python: str, core: Path, tmp_path: Path
) -> None:
    write_library(package("digits", board="nucleo_f446re"), tmp_path, "platformio")
    said = run(python, "-m", "platformio", "project", "config", "--json-output", "-d",
               tmp_path / "examples" / "run", core=core)
    environments = {name: dict(options) for name, options in json.loads(said)}
    assert environments["env:nucleo_f446re"] | {"board": "nucleo_f446re"} == (
        environments["env:nucleo_f446re"]
    )
    assert environments["env:native"]["platform"] == "native"


def test_the_component_manager_knows_all_that_a_components_description_says(
    python: str, tmp_path: Path
) -> None:
    write_library(package("several"), tmp_path / "component", "esp-idf")
    words = (Path(python).with_name("compote"), "manifest", "lint")
    run(*words, folder=tmp_path / "component")
    described = tmp_path / "component" / "idf_component.yml"
    described.write_text(described.read_text().replace('"1.0.0"', '"x.y"'))
    with pytest.raises(AssertionError, match="Invalid version string"):
        run(*words, folder=tmp_path / "component")
