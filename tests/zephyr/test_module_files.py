"""Zephyr and west read these files of zephyr_app/: manifest, module.yml, Kconfig, sample.yaml."""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from west.manifest import ImportFlag, Manifest

from tests.cli.support import DIGITS_IMAGES, DIGITS_LABELS
from tests.helpers import ROOT, require_module

APP = ROOT / "zephyr_app"

# What modules of Zephyr 3.4 to 4.2 may say (scripts/zephyr_module.py), as far as it is of use here.
BUILD_KEYS = {"cmake": str, "kconfig": str, "depends": list, "settings": dict}
MODULE_KEYS = {"name": str, "build": dict, "samples": list, "tests": list}


def test_the_manifest_is_one_and_allows_modules_by_name() -> None:
    manifest = Manifest.from_data(
        (APP / "west.yml").read_text(), import_flags=ImportFlag.IGNORE
    )
    (zephyr,) = [project for project in manifest.projects if project.name == "zephyr"]
    assert re.fullmatch(r"v4\.2\.\d+", zephyr.revision), "tests run with 3.4 and 4.2"
    raw = yaml.safe_load((APP / "west.yml").read_text())["manifest"]
    imported = next(p for p in raw["projects"] if p["name"] == "zephyr")["import"]
    assert set(imported) == {"name-allowlist"}
    assert "cmsis" in imported["name-allowlist"]
    commands = raw["self"]["west-commands"]
    assert (ROOT / commands).is_file()


@pytest.mark.parametrize("root", [APP, ROOT], ids=["zephyr_app", "checkout"])
def test_module_yml_says_only_what_zephyr_knows(root: Path) -> None:
    data = yaml.safe_load((root / "zephyr" / "module.yml").read_text())
    assert data["name"] == "crtexport"
    for keys, values in ((MODULE_KEYS, data), (BUILD_KEYS, data["build"])):
        for key, value in values.items():
            assert isinstance(value, keys[key])
    assert (root / data["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (root / data["build"]["kconfig"]).is_file()
    for sample in data["samples"]:
        assert (root / sample / "sample.yaml").is_file()


KCONFIG = """
config QEMU_TARGET
config ARCH_POSIX
config THREAD_STACK_INFO
config INIT_STACKS
"""


def kconfig(folder: Path, *settings: str) -> Any:
    """The module's symbols after ``settings``, with stubs for those of Zephyr that it names."""
    require_module("kconfiglib")
    import kconfiglib

    stubs = re.sub(r"(config \w+)", r"\1\n\tbool", KCONFIG)
    module = (APP / "zephyr" / "Kconfig").read_text()
    (folder / "Kconfig").write_text(f"{stubs}\n{module}")
    found = kconfiglib.Kconfig(str(folder / "Kconfig"), warn_to_stderr=False)
    (folder / ".config").write_text("\n".join(settings) + "\n")
    found.load_config(str(folder / ".config"))
    return found


def value(found: Any, name: str) -> str:
    return str(found.syms[name].str_value)


def test_nothing_is_on_by_itself(tmp_path: Path) -> None:
    found = kconfig(tmp_path)
    assert value(found, "CRTEXPORT") == "n"
    assert [s.name for s in found.unique_defined_syms if s.str_value == "y"] == []


def test_defaults_of_the_module(tmp_path: Path) -> None:
    found = kconfig(tmp_path, "CONFIG_CRTEXPORT=y")
    assert value(found, "CRTEXPORT_BACKEND") == "llvm"
    assert value(found, "CRTEXPORT_OPTIMIZE") == "balanced"
    assert value(found, "CRTEXPORT_WORKSPACE_BSS") == "y"
    assert value(found, "CRTEXPORT_MEASURE") == "n"
    assert not found.warnings


@pytest.mark.parametrize(("setting", "symbol", "expected"), [
    ("CONFIG_CRTEXPORT_BACKEND_C=y", "CRTEXPORT_BACKEND", "c"),
    ("CONFIG_CRTEXPORT_OPTIMIZE_SIZE=y", "CRTEXPORT_OPTIMIZE", "size"),
    ("CONFIG_CRTEXPORT_OPTIMIZE_COMPACT=y", "CRTEXPORT_OPTIMIZE", "compact"),
    ("CONFIG_CRTEXPORT_OPTIMIZE_SPEED=y", "CRTEXPORT_OPTIMIZE", "speed"),
    ("CONFIG_CRTEXPORT_TIMING=y", "CRTEXPORT_MEASURE", "y"),
    ("CONFIG_CRTEXPORT_TIMING=y", "CRTEXPORT_PRINT", "y"),
    ("CONFIG_CRTEXPORT_STACK_CHECK=y", "INIT_STACKS", "y"),
    ("CONFIG_CRTEXPORT_STACK_CHECK=y", "CRTEXPORT_STACK_MARGIN", "128"),
    ("CONFIG_CRTEXPORT_WORKSPACE_SECTION=y", "CRTEXPORT_WORKSPACE_SECTION_NAME",
     ".noinit.crtexport"),
    ("CONFIG_CRTEXPORT_WORKSPACE_CHOSEN=y", "CRTEXPORT_WORKSPACE_BSS", "n"),
])
def test_settings_have_their_consequences(
    tmp_path: Path, setting: str, symbol: str, expected: str
) -> None:
    assert value(kconfig(tmp_path, "CONFIG_CRTEXPORT=y", setting), symbol) == expected


def test_the_sample_expects_what_the_images_show() -> None:
    sample = yaml.safe_load((APP / "sample.yaml").read_text())
    regex = sample["common"]["harness_config"]["regex"]
    labels = np.load(DIGITS_LABELS).tolist()
    assert regex[0] == f"image 0 shows {labels[0]}, predicted {labels[0]}"
    assert regex[1] == f"image 11 shows {labels[11]}, predicted {labels[11]}"
    main = (APP / "src" / "main.c").read_text()
    assert "image %d shows %d, predicted %d" in main
    assert len(sample["tests"]) == 2


def test_the_images_in_the_application_are_those_of_the_example() -> None:
    text = (APP / "src" / "images.h").read_text()
    numbers = [int(n) for n in re.findall(r"-?\d+(?=,)", text.split("images[IMAGES]")[1])]
    assert numbers == np.load(DIGITS_IMAGES)["image"].reshape(-1).tolist()
    labels = re.search(r"labels\[IMAGES\] = \{(.*?)\}", text)
    assert labels
    assert [int(n) for n in labels[1].split(",")] == np.load(DIGITS_LABELS).tolist()


def west_command() -> ModuleType:
    listed = yaml.safe_load((APP / "scripts" / "west-commands.yml").read_text())["west-commands"]
    path = ROOT / listed[0]["file"]  # as west does
    spec = importlib.util.spec_from_file_location("crtexport_west", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert hasattr(module, listed[0]["commands"][0]["class"])
    return module


@pytest.mark.parametrize(("typed", "run"), [
    (["boards"], [["zephyr", "boards"]]),
    (["boards", "-d", "b", "--json"], [["zephyr", "board", "b", "--json"]]),
    (["report", "-d", "b"], [["zephyr", "report", "b"]]),
    (["report"], [["zephyr", "report", "build"]]),
    (["export", "m.tflite", "-d", "b", "--emit", "c"], [
        ["zephyr", "board", "b", "-o", "b/crtexport/board.yaml", "-q"],
        ["export", "m.tflite", "--board", "b/crtexport/board.yaml", "--emit", "c"],
    ]),
])
def test_west_crtexport_runs_the_exporter(typed: list[str], run: list[list[str]]) -> None:
    module = west_command()
    parsers = argparse.ArgumentParser().add_subparsers()
    parser = module.Crtexport().do_add_parser(parsers)
    args, unknown = parser.parse_known_args(typed)
    assert module.commands(args, unknown) == run


def fake_python(folder: Path, problem: str) -> str:
    """A Python that can't run the exporter: a script that fails as one without a package does."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\necho '{problem}' >&2\nexit 1\n")
    script.chmod(0o755)
    return str(script)


def test_west_crtexport_takes_the_program_in_the_search_path_where_west_has_no_exporter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = west_command()
    command, variables = module.exporter()
    assert command[1:] == ["-m", "crtexport"]
    assert variables["PYTHONPATH"].startswith(str(ROOT))
    problem = "ModuleNotFoundError: No module named 'msgspec'"
    monkeypatch.setattr(module.sys, "executable", fake_python(tmp_path, problem))
    program = tmp_path / "bin" / "crtexport"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/said\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")
    west = module.Crtexport()
    west.config = SimpleNamespace(getboolean=lambda *_, **__: False)
    west.do_run(argparse.Namespace(verb="boards", build_dir=None), ["--json"])
    assert (tmp_path / "said").read_text() == "zephyr boards --json\n"


def test_west_crtexport_says_what_is_missing_where_there_is_no_exporter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = west_command()
    monkeypatch.setattr(module.sys, "executable", fake_python(tmp_path, "ModuleNotFoundError"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    west = module.Crtexport()
    west.config = SimpleNamespace(getboolean=lambda *_, **__: False)  # no colours
    with pytest.raises(SystemExit):
        west.do_run(argparse.Namespace(verb="boards", build_dir=None), [])
    said = capsys.readouterr()
    assert "the exporter is not there" in said.err
    assert "-m pip install" in said.err
    assert "Traceback" not in said.err + said.out
