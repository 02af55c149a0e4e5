"""No verb writes over what it reads, whatever name it has: looked at for every option that names a
file, which are found in the program itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest

from crtexport.cli.main import cli, main
from crtexport.importers import load
from crtexport.simulation.tflite_writer import to_tflite
from tests.cli.support import DIGITS, exported

WRITTEN = {
    "bench": {"picture", "tuning"}, "boards new": {"output"}, "build": {"folder"},
    "convert": {"output"},
    "export": {"output", "folder", "depfile", "application", "keep_failed", "tuning"},
    "plan": {"picture"}, "quantize": {"output"}, "report": {"page"}, "run": {"save"},
    "simulate": {"save"},
    "unpack": {"folder"}, "zephyr board": {"output"},
}
"""The parameters of each command that name what it writes."""
READ = {
    "bench": {"models", "input_file", "onnx"}, "boards new": {"source"},
    "build": {"package", "input_file", "expected", "device_code"},
    "convert": {"model"}, "diff": {"before", "after"}, "export": {"models", "input_file"},
    "inspect": {"path", "tuning"}, "plan": {"model"}, "quantize": {"model"},
    "report": {"path", "input_file", "tuning"}, "run": {"package", "input_file", "device_code"},
    "simulate": {"package", "input_file", "device_code"}, "unpack": {"package"},
    "verify": {"model", "tuning"},
    "zephyr board": {"build"}, "zephyr check": {"package", "build"}, "zephyr report": {"build"},
    "zephyr sources": {"model", "board"},
}


def leaves(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands by their words."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        inner = command.get_command(context, word)
        assert inner is not None
        yield from leaves(inner, f"{name} {word}".strip())


@pytest.mark.parametrize(("name", "command"), [*leaves(cli)], ids=str)
def test_it_is_known_of_every_file_whether_it_is_written(
    name: str, command: click.Command
) -> None:
    """A new option for a file comes with its place in a table, and so with the test below."""
    files = {p.name for p in command.params if isinstance(p.type, click.Path)}
    written, read = WRITTEN.get(name, set()), READ.get(name, set())
    assert files == written | read
    assert not written & read


@dataclass(frozen=True)
class Attempt:
    """A command line in which {} is a file that it reads: ``read``."""

    words: str
    read: str
    named: str = "{}"
    """The option's value in its place: a link of another name where a suffix is wanted."""

    @property
    def command(self) -> str:
        words = self.words.split()
        return " ".join(words[:2]) if words[0] in ("boards", "zephyr") else words[0]


EXPORT = "export model.json --board mine.yaml --emit c "
BENCH = "bench model.json --board mine.yaml "
RUN = "--input x.npz --device-code hooks.c"
ATTEMPTS = (
    *(Attempt(EXPORT + f"{option} {{}}", read)
      for option in ("-o", "--depfile")
      for read in ("model.json", "model.safetensors", "mine.yaml", "family.yaml")),
    Attempt(EXPORT + "--run --input x.npz -o {}", "x.npz"),
    Attempt(EXPORT + "--tuning tune.json -o {}", "tune.json"),
    Attempt(EXPORT + "--tune --tuning {}", "model.json"),
    Attempt(EXPORT + "--tune --tuning {}", "model.safetensors"),
    Attempt(EXPORT + "--tune --tuning {}", "mine.yaml"),
    Attempt("export model.tflite --emit c -o {}", "model.tflite"),
    Attempt("convert model.json -o {}", "model.json"),
    Attempt("convert other.json -o {}.json", "model.safetensors", "sidecar"),
    Attempt("convert model.tflite -o {}", "model.tflite"),
    *(Attempt("quantize o.onnx --data x.npz -o {}", read) for read in ("o.onnx", "x.npz")),
    *(Attempt(f"{verb} k.tar {RUN} --output {{}}", read)
      for verb in ("run", "simulate") for read in ("k.tar", "x.npz", "hooks.c")),
    *(Attempt(BENCH + "--input x.npz --onnx o.onnx --chart {}.svg", read, "picture")
      for read in ("model.json", "model.safetensors", "mine.yaml", "x.npz", "o.onnx")),
    *(Attempt("bench model.json --board mps2_an386 --tune --tuning {}", read)
      for read in ("model.json", "model.safetensors")),
    *(Attempt("report model.json --board mine.yaml --emit c --tuning tune.json -o {}.html", read,
              "page")
      for read in ("model.json", "model.safetensors", "mine.yaml", "family.yaml", "tune.json")),
    Attempt("report k.tar -o {}.html", "k.tar", "page"),
    *(Attempt("plan model.json --board mine.yaml -o {}.svg", read, "picture")
      for read in ("model.json", "model.safetensors", "mine.yaml")),
    Attempt("boards new b --from chip.pdsc -o {}", "chip.pdsc"),
    *(Attempt("zephyr board build -o {}", f"build/{read}")
      for read in ("zephyr/.config", "zephyr/zephyr.dts", "compile_commands.json")),
)
FOLDERS = {("export", "folder"), ("export", "application"), ("export", "keep_failed"),
           ("unpack", "folder"), ("build", "folder")}
"""Options that name folders, which hold many files: these have tests of their own."""
OPTIONS = {
    "-o": "output", "--depfile": "depfile", "--tuning": "tuning", "--output": "save",
    "--chart": "picture",
}


SUFFIXES = {"picture": ".svg", "page": ".html", "sidecar": ".safetensors"}


def test_every_option_for_a_written_file_is_tried() -> None:
    tried = {
        (one.command, one.named if one.named in ("page", "picture") else (
            OPTIONS[one.words.split()[-2]]
        ))
        for one in ATTEMPTS
    }
    assert tried | FOLDERS == {(name, each) for name, names in WRITTEN.items() for each in names}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that commands read."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("model.json", "model.safetensors"):
        shutil.copyfile(DIGITS.with_name(name), folder / name)
    shutil.copyfile(DIGITS, folder / "other.json")
    (folder / "model.tflite").write_bytes(to_tflite(load(DIGITS)))
    (folder / "family.yaml").write_text("extends: host\nabstract: true\n")
    (folder / "mine.yaml").write_text("extends: family\nname: mine\ndescription: ours\n")
    np.savez(folder / "x.npz", image=np.zeros((1, 64), np.int8))
    exported(folder).rename(folder / "k.tar")
    (folder / "build" / "zephyr").mkdir(parents=True)
    for name in ("hooks.c", "tune.json", "o.onnx", "chip.pdsc", "build/compile_commands.json",
                 "build/zephyr/.config", "build/zephyr/zephyr.dts"):
        (folder / name).write_text("precious")
    return folder


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Content and time of every file, and whether it is a link."""
    return {
        f"{path.relative_to(folder)} {path.is_symlink()}":
            (path.lstat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("how", ["named so", "symbolic link", "hard link"])
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: f"{a.words}, {a.read}")
def test_an_output_that_is_read_is_refused_before_anything_happens(
    attempt: Attempt, how: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    monkeypatch.chdir(folder)
    name = attempt.read
    if how != "named so" or attempt.named != "{}":
        name = attempt.named if attempt.named != "{}" else "link"
        suffix = SUFFIXES.get(attempt.named, "")
        link = os.symlink if how == "symbolic link" else os.link
        link(Path(attempt.read).absolute(), name + suffix)
    before = state(folder)
    assert main(attempt.words.format(name).split()) == 2
    said = capsys.readouterr()
    assert "names a file that is read" in said.err
    assert not said.out
    assert state(folder) == before


def test_two_outputs_of_one_name_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "x")
    assert main([str(DIGITS), "--emit", "c", "-o", name, "--depfile", name]) == 2
    assert "--depfile and -o name one file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("quiet", [[], ["-q"], ["--json"]])
def test_a_symbolic_link_is_replaced_and_what_it_leads_to_stays(
    quiet: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious, link = tmp_path / "precious", tmp_path / "x.tar"
    precious.write_text("precious")
    link.symlink_to("precious")
    assert main([str(DIGITS), "--board", "host", "--emit", "c", "-o", str(link), *quiet]) == 0
    said = capsys.readouterr().err
    assert said == ("" if quiet == ["-q"] else
                    f"note: {link} is a symbolic link: it is replaced, precious stays as it is\n")
    assert precious.read_text() == "precious"
    assert not link.is_symlink()
    assert link.stat().st_size > 1000


def test_the_systems_own_files_are_never_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("/dev/stdout", "/dev/null", "/proc/self/fd/1"):
        path = Path(name)
        before = (path.is_symlink(), path.lstat().st_mode)
        assert main([str(DIGITS), "--emit", "c", "-o", name]) == 2
        assert "Not a regular file" in capsys.readouterr().err
        assert (path.is_symlink(), path.lstat().st_mode) == before
