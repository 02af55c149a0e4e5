"""Runs the code blocks of a page: one function for each language.

The keys of a block's comment (:mod:`tests.docs.pages`) are the keyword arguments of its runner.
``write`` goes with all: files that the page's reader has, by name.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import crtexport
from crtexport.cli.main import cli
from crtexport.devices import simulated
from crtexport.importers import load
from crtexport.simulation.tflite_writer import to_tflite
from tests.cli.support import DIGITS
from tests.docs import zephyr_blocks
from tests.docs.mentions import check_command
from tests.docs.pages import Block, Page
from tests.docs.place import Place
from tests.helpers import (
    ROOT,
    require_environment,
    require_module,
    require_reference,
    shared_model,
    unavailable,
)

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")
FILES = Path(__file__).with_name("files")
_SECONDS = 900

Run = Callable[..., None]


def run_page(page: Page, place: Place) -> None:
    """Runs the blocks of ``page`` in their order; pytest's failure says which one went wrong."""
    place.monkeypatch.chdir(place.folder)
    place.monkeypatch.setenv("PATH", f"{_programs(place.folder)}{os.pathsep}{os.environ['PATH']}")
    for name in page.files:
        _prepare(name, place.folder)
    for block in page.blocks:
        if block.reason is None:
            with _told(block):
                run_block(block, place)


def run_block(block: Block, place: Place) -> None:
    """Runs one block; raises whatever is wrong with it."""
    options = dict(block.options)
    language = options.pop("as", block.language)
    run = RUNNERS.get(language)
    if run is None:
        raise LookupError(f"nothing runs a block of {language}")
    for name, text in options.pop("write", {}).items():
        (place.folder / name).write_text(text, encoding="utf-8")
    try:
        inspect.signature(run).bind(block, place, **options)
    except TypeError as error:
        raise LookupError(f"the comment of a block of {language}: {error}") from None
    run(block, place, **options)


@contextmanager
def _told(block: Block) -> Iterator[None]:
    try:
        yield
    except pytest.skip.Exception:
        raise
    except BaseException as error:
        said = "".join(traceback.format_exception(error))
        pytest.fail(f"{block} {error}\n{said}\n{block.text}", pytrace=False)


def _programs(folder: Path) -> Path:
    """A folder with ``crtexport`` and ``python`` as they are installed where the tests run."""
    programs = folder / ".programs"
    programs.mkdir()
    for name, module in (("crtexport", " -m crtexport"), ("python", "")):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{module} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return programs


def _prepare(name: str, folder: Path) -> None:
    """Puts the file ``name`` there: the bundled example in either format, a folder of the checkout,
    one of the files beside this module, or a network of MLPerf Tiny; in ``name=file.json`` the
    network is that of a file beside this module."""
    name, _, network = name.partition("=")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if network:
        path.write_bytes(to_tflite(load(FILES / network)))
    elif (ROOT / name).is_dir():
        shutil.copytree(ROOT / name, path)
    elif (FILES / name).is_file():
        shutil.copy(FILES / name, path)
    elif name == "first.bin":
        path.write_bytes(simulated.program({"main": (4, bytes(range(256)))}))
    elif path.suffix == ".json":
        shutil.copy(DIGITS, path)
        shutil.copy(DIGITS.with_name("model.safetensors"), path.parent)
    elif name == "kws.tflite":
        shutil.copy(shared_model("kws_int8"), path)
    elif path.suffix == ".bin":
        path.write_bytes(bytes(8192))
    elif path.suffix == ".tflite":
        path.write_bytes(to_tflite(load(DIGITS)))
    else:
        raise LookupError(f"nothing makes the file {name}")


def shell(block: Block, place: Place, *, exit: int = 0) -> None:  # noqa: A002
    """A script in which each command must succeed, or which ends with another ``exit`` code."""
    _script(block.text, place.folder, os.environ, exit)


def _script(
    text: str, folder: Path, variables: Mapping[str, str], exit: int = 0,  # noqa: A002
) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=variables, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=_SECONDS, check=False,
    )
    if done.returncode != exit:
        raise AssertionError(f"ended with {done.returncode} instead of {exit}:\n{done.stdout}")


def fresh(block: Block, place: Place) -> None:
    """A script that begins in a copy of the checkout, with an environment of Python in which
    nothing is installed; the page's files are there, too. The reference runtime is that of the
    tests."""
    runtime = require_reference()
    environment, checkout = place.folder / "environment", place.folder / "checkout"
    files = [path for path in place.folder.iterdir() if path.is_file()]
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "tests", "__pycache__"))
    for path in files:
        shutil.copy(path, checkout)
    _run([sys.executable, "-m", "venv", str(environment)])
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables |= {"CRTEXPORT_TFLITE_PYTHON": runtime.python}
    variables |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1"}
    pip = [str(environment / "bin" / "python"), "-m", "pip"]
    reached = subprocess.run(
        [*pip, "download", "-q", "--no-deps", "-d", str(place.folder / "wheels"), "hatchling"],
        env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False,
    )
    if reached.returncode:
        unavailable("pypi", f"packages can't be installed here: {reached.stderr}")
    _script(block.text, checkout, variables)


def python(
    block: Block, place: Place, *, save: str | None = None, then: str = "",
    environment: str | None = None, needs: str = "",
) -> None:
    """Statements that share their names with the page's others; ``save`` is the file that they
    stand in, ``then`` what must hold behind them, ``needs`` names modules of others. With
    ``environment`` they are a program of their own for the Python of ``.venv-ENVIRONMENT``."""
    if environment is not None:
        found = require_environment(environment, *needs.split())
        # One thread: several wait for each other in loops where other tests run, too.
        _run(["env", "OMP_NUM_THREADS=1", found, "-W", "ignore", "-c", block.text])
        return
    for module in needs.split():
        require_module(module)
    if save is not None:
        (place.folder / save).write_text(block.text, encoding="utf-8")
        place.monkeypatch.syspath_prepend(str(place.folder))
    exec(compile(block.text, str(block), "exec"), place.scope)  # noqa: S102
    exec(compile(then, f"{block}, then", "exec"), place.scope)  # noqa: S102


def c(
    block: Block, place: Place, *, package: str | None = None, before: str = "",
    inside: str | None = None, after: str = "", main: str | None = None,
    include: str = "", flags: str = "",
) -> None:
    """C99 that compiles without a warning, against the headers of the ``package`` that crtexport
    makes with these arguments, and those in folders of the checkout (``include``).

    ``inside`` is the function, as in ``void f(void)``, that statements stand in; ``before`` are
    declarations that the reader has, ``after`` are statements that use what a statement declares.
    With ``main`` the whole becomes a program with the package's sources, which must end with 0.
    ``<m>`` and ``<M>`` stand for a model that is called m.
    """
    text = block.text.replace("<m>", "m").replace("<M>", "M")
    if inside is not None:
        lines = text.splitlines(keepends=True)
        includes = [line for line in lines if line.startswith("#include")]
        rest = "".join("\n" if line in includes else line for line in lines)
        text = f"{inside}\n{{\n{rest}{after}\n}}\n"
        before = f"{''.join(includes)}{before}"
    source = place.folder / f"line{block.line}.c"
    source.write_text(f"{before}\n{text}\n{main or ''}\n", encoding="utf-8")
    made = place.package(package) if package is not None else None
    folders = [f"-I{ROOT / name}" for name in include.split()]
    if made is not None:
        folders.append(f"-I{made / 'include'}")
    command = ["gcc", *STRICT, *shlex.split(flags), *folders, str(source)]
    program = source.with_suffix("")
    if main is None:
        _run([*command, "-c", "-o", f"{program}.o"])
        return
    sources = map(str, sorted((made / "src").glob("*.c"))) if made is not None else ()
    _run([*command, *sources, "-o", str(program)])
    _run([str(program)])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n"
                             f"{done.stdout}{done.stderr}")
    return done.stdout


def json_(
    block: Block, place: Place, *, model: dict[str, Any] | None = None, into: str | None = None
) -> None:
    """A model.json that can be exported and run; or what goes ``into`` one: its ``nodes``, the
    ``document``'s keys, or line by line keys of its ``tensors``."""
    document = {"format": "crtexport-model", "version": 1, "nodes": [], **(model or {})}
    if into == "nodes":
        document["nodes"] = [*document["nodes"], json.loads(block.text)]
    elif into == "document":
        document |= json.loads(block.text)
    elif into == "tensors":
        lines = block.text.strip().splitlines()
        for tensor, line in zip(document["tensors"], lines, strict=True):
            tensor.update(json.loads(line))
    else:
        document = json.loads(block.text)
    path = place.folder / f"line{block.line}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    exported = crtexport.export(path, emit="c", output=path.with_suffix(".tar"))
    crtexport.simulate(exported.path)


def board(block: Block, place: Place, *, rest: dict[str, Any] | None = None) -> None:
    """A board's file, with the ``rest`` of its keys, that a model can be exported for."""
    data = {**(rest or {}), **yaml.safe_load(block.text)}
    path = place.folder / f"{data['name']}.yaml"
    text = block.text if rest is None else f"{yaml.safe_dump(rest)}{block.text}"
    path.write_text(text, encoding="utf-8")
    exported = crtexport.export(DIGITS, board=path, output=place.folder / f"line{block.line}.tar")
    assert exported.board == data["name"]


def cmake(block: Block, place: Place) -> None:
    """A script of CMake's."""
    script = place.folder / f"line{block.line}.cmake"
    script.write_text(block.text, encoding="utf-8")
    _run(["cmake", "-P", str(script)])


def toml(block: Block, place: Place) -> None:
    """Entry points, as ``pip install`` leaves them."""
    groups = tomllib.loads(block.text)["project"]["entry-points"]
    info = place.folder / "page-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: page\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    ))


def file(block: Block, place: Place, *, save: str) -> None:
    """A file that the reader has, by its name."""
    (place.folder / save).write_text(block.text, encoding="utf-8")


def synopsis(block: Block, place: Place) -> None:
    """Commands in short: each is there, with all options that are shown."""
    text = block.text.replace("\n  ", " ")
    for line in text.strip().splitlines():
        check_command(cli, line)


def diff(block: Block, place: Place) -> None:
    """A change of the checkout: test_contributing.py makes those of CONTRIBUTING.md in a copy."""
    del place
    if block.page != "CONTRIBUTING.md":
        raise ValueError("nobody makes the changes of this page")


RUNNERS: dict[str, Run] = {
    "": shell, "sh": shell, "bash": shell, "shell": shell, "console": shell,
    "python": python, "c": c, "json": json_, "yaml": board, "cmake": cmake,
    "fresh": fresh, "toml": toml, "synopsis": synopsis, "diff": diff, "file": file,
    "west": zephyr_blocks.west, "kconfig": zephyr_blocks.kconfig,
    "dts": zephyr_blocks.dts, "crtexport_model": zephyr_blocks.crtexport_model,
    "signatures": zephyr_blocks.signatures,
}
