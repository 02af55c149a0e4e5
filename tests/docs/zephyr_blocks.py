"""Runners for blocks of applications of Zephyr, as far as they need no tree of it.

``tests/zephyr/test_builds.py`` builds and runs the application with one.
"""

from __future__ import annotations

import re
import shutil

from devicetree import dtlib
from west.manifest import ImportFlag, Manifest

from tests.docs.pages import Block
from tests.docs.place import Place
from tests.helpers import ROOT
from tests.zephyr.test_cmake import MODULE, Project
from tests.zephyr.test_module_files import kconfig as load_kconfig

_MAIN = """
#include "tvmgen_kws.h"

int main(void)
{
    static char data[TVMGEN_KWS_INPUT_1_SIZE + TVMGEN_KWS_IDENTITY_SIZE];
    struct tvmgen_kws_inputs inputs = {data};
    struct tvmgen_kws_outputs outputs = {data + TVMGEN_KWS_INPUT_1_SIZE};
    return tvmgen_kws_run(&inputs, &outputs);
}
"""


def west(block: Block, place: Place) -> None:
    """Keys of a west.yml."""
    text = f"manifest:\n{''.join(f'  {line}' for line in block.text.splitlines(keepends=True))}"
    manifest = Manifest.from_data(text, import_flags=ImportFlag.IGNORE)
    named = [file for project in manifest.projects[1:] for file in project.west_commands]
    assert named
    assert all((ROOT / file).is_file() for file in named)


def kconfig(block: Block, place: Place) -> None:
    """Lines of a prj.conf that the module's Kconfig takes without a warning."""
    folder = place.folder / f"line{block.line}"
    folder.mkdir()
    found = load_kconfig(folder, *block.text.splitlines())
    assert not [line for line in found.warnings if "CRTEXPORT" in line], found.warnings


def dts(block: Block, place: Place, *, nodes: str) -> None:
    """An overlay of a devicetree that has ``nodes``."""
    path = place.folder / f"line{block.line}.dts"
    path.write_text(f"/dts-v1/;\n{nodes}\n{block.text}", encoding="utf-8")
    dtlib.DT(str(path))


def crtexport_model(block: Block, place: Place) -> None:
    """A call of the module's function with the network kws.tflite: configured, built and run."""
    folder = place.folder / f"line{block.line}"
    folder.mkdir()
    project = Project(folder)
    (folder / "main.c").write_text(_MAIN, encoding="utf-8")
    shutil.copy(place.folder / "kws.tflite", folder)
    arguments = re.fullmatch(r"crtexport_model\((.*)\)\s*", block.text, re.DOTALL)
    assert arguments is not None
    done = project.configure(arguments[1])
    assert done.returncode == 0, done.stderr
    project.make()
    assert project._run(str(project.build / "app")).returncode == 0


def signatures(block: Block, place: Place) -> None:
    """Calls of the module's function in short, which has all arguments that they show."""
    parsed = re.search(
        r"cmake_parse_arguments\(PARSE_ARGV 0 arg(.*?)\)", MODULE.read_text(), re.DOTALL
    )
    assert parsed is not None
    # A word behind an argument is its value, as in INPUTS CONST.
    shown = set(re.findall(r"(?<![A-Z] )\b[A-Z][A-Z_]+\b", block.text))
    assert shown == set(re.findall(r"[A-Z_]+", parsed[1]))
