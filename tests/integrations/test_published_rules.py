"""Libraries follow the published rules of their build systems, as the systems' checkers name them.

Neither Debian nor PyPI has arduino-lint, packchk and csolution; packchk runs where it is installed.
"""

from __future__ import annotations

import re
import shutil
from configparser import ConfigParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from crtexport import write_library
from crtexport.pipeline.driver import Emit, export
from tests.cli.support import DIGITS
from tests.integrations.test_libraries import KINDS, package, run

LONG = "a_network_whose_name_says_when_and_where_and_on_what_it_was_trained_v12"
LICENSES = re.compile(r"(?i)((un)?licen[sc]e|copy(ing|right))(\.(md|markdown|txt|html))?")
DESCRIPTION = 128  # characters


def arduino(path: Path, folder: Path) -> dict[str, str]:
    """Writes the library and returns its properties."""
    write_library(path, folder, "arduino", version="0.10.3")
    parser = ConfigParser()
    parser.read_string("[l]\n" + (folder / "library.properties").read_text())
    return dict(parser["l"])


@pytest.mark.parametrize("kind", KINDS)
def test_an_arduino_librarys_properties_follow_the_rules(kind: str, tmp_path: Path) -> None:
    """Rules LP001 to LP058 in the strict form."""
    found = arduino(package(kind), tmp_path)
    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_.-]{0,31}", found["name"])
    assert not re.search("arduino|library", found["name"], re.IGNORECASE)
    assert found["version"] == "0.10.3"
    assert found["author"]
    assert "arduino" not in found["maintainer"].lower()
    assert found["sentence"].endswith(".")
    assert not found["paragraph"].startswith(found["sentence"])
    assert found["category"] in {
        "Display", "Communication", "Signal Input/Output", "Sensors", "Device Control", "Timing",
        "Data Storage", "Data Processing", "Other",
    }
    assert found["url"].startswith("https://")
    assert found["architectures"] == "*"
    for header in found["includes"].split(","):
        assert (tmp_path / "src" / header).is_file()
    assert not {"depends", "dot_a_linkage", "precompiled", "ldflags", "email"} & {*found}
    tabs = [line.split("\t") for line in (tmp_path / "keywords.txt").read_text().splitlines()
            if not line.startswith("#")]
    assert all(len(columns) == 2 for columns in tabs)


def test_an_arduino_librarys_files_follow_the_rules(tmp_path: Path) -> None:
    """Rules LS001 to LS012, LD001 to LD006, LC001."""
    found = arduino(package("several"), tmp_path)
    top = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert top == {"LICENSE", "README.md", "examples", "keywords.txt", "library.properties", "src"}
    assert [name for name in top if LICENSES.fullmatch(name)] == ["LICENSE"]
    assert (tmp_path / "src" / f"{found['name']}.h").is_file()
    every = [*tmp_path.rglob("*")]
    assert not [path for path in every if path.is_symlink() or path.suffix == ".exe"]
    (sketch,) = tmp_path.rglob("*.ino")
    assert sketch.parent == tmp_path / "examples" / sketch.stem
    for path in every:
        if path.suffix in (".h", ".c", ".ino"):
            included = re.findall(r'#include [<"](arduino\.h)[>"]', path.read_text(), re.I)
            assert set(included) <= {"Arduino.h"}


def test_long_names_are_made_as_short_as_a_system_has_them(tmp_path: Path) -> None:
    path = export(DIGITS, board="mps2_an386", emit="c", output=tmp_path / "long.tar",
                  module_name=LONG).path
    name = arduino(path, tmp_path / "a")["name"]
    assert len(name) == 63
    assert (tmp_path / "a" / "src" / f"{name}.h").is_file()
    write_library(path, tmp_path / "p", "cmsis-pack")
    (described,) = (tmp_path / "p").glob("*.pdsc")
    check_pack(tmp_path / "p", described)
    assert LONG[:23] in described.name


@pytest.mark.parametrize(("kind", "emit"), [("digits", "c"), ("digits", "llvm"), ("several", "c")])
def test_a_cmsis_pack_follows_the_rules(kind: str, emit: Emit, tmp_path: Path) -> None:
    write_library(package(kind, emit=emit), tmp_path, "cmsis-pack")
    (described,) = tmp_path.glob("*.pdsc")
    check_pack(tmp_path, described)


def check_pack(folder: Path, described: Path) -> None:
    """Asserts packchk's rules by their numbers, and that the layer of the CMSIS-Toolbox names what
    the pack has; runs packchk where there is one."""
    root = ET.parse(described).getroot()  # noqa: S314  (ours)
    name, vendor = root.findtext("name"), root.findtext("vendor")
    assert described.name == f"{vendor}.{name}.pdsc"  # M207, M310
    assert name is not None
    assert re.fullmatch(r"[-_A-Za-z0-9]+", name)  # M302, M303
    url = root.findtext("url") or ""
    assert url.startswith("https://")
    assert url.endswith("/")  # M304, M316
    for one in root.iter("description"):
        assert 0 < len(one.text or "") <= DESCRIPTION  # M306, M387
    releases = [*root.iter("release")]
    assert releases
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", one.get("version", "")) for one in releases)  # M305
    assert all(one.text for one in releases)  # M329
    assert LICENSES.fullmatch(root.findtext("license") or "")
    (condition,), (component,) = root.iter("condition"), root.iter("component")
    assert condition.get("id") == component.get("condition")  # M331, M332, M333
    assert [one.get("Dcore") for one in condition.iter("accept")] == ["Cortex-M4"]
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}", component.get("Csub", ""))
    named = {one.get("name", ""): one.get("category") for one in component.iter("file")}
    endings = {"sourceC": ".c", "header": ".h", "object": ".o"}
    for path, category in named.items():
        assert " " not in path  # M314
        assert "\\" not in path  # M326, M327
        if category == "include":
            assert path.endswith("/")  # M340
            assert (folder / path).is_dir()  # M339
        else:
            assert (folder / path).is_file()  # M323
            assert path.endswith(endings[category or ""])  # M337
    code = {path.relative_to(folder).as_posix() for path in folder.rglob("*.[co]")}
    assert code == {path for path, kind in named.items() if kind in ("sourceC", "object")}
    (file,) = folder.glob("*.clayer.yml")
    layer = yaml.safe_load(file.read_text())["layer"]
    assert layer["packs"] == [{"pack": f"{vendor}::{name}", "path": "."}]
    assert layer["components"] == [{"component": ":".join(
        component.get(key, "") for key in ("Cclass", "Cgroup", "Csub")
    )}]
    assert {*layer} <= {"description", "packs", "components", "misc"}
    if shutil.which("packchk"):
        run("packchk", "--disable-validation", "--pedantic", described, folder=folder)
