"""The program as a whole: which command is meant, errors as words, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

import crtexport
from crtexport import __main__
from crtexport.cli.main import COMMANDS as SHORT
from crtexport.cli.main import cli, main
from crtexport.support.errors import CrtExportError, RunFailedError, ToolMissingError
from tests.cli.support import DIGITS, exported
from tests.helpers import ROOT, require


def flattened(group: click.Group, before: str = "") -> dict[str, click.Command]:
    """All commands by the words that call them: ``run``, ``zephyr board``."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= flattened(command, f"{before}{name} ")
        else:
            found[before + name] = command
    return found


ALL = flattened(cli)
COMMANDS = sorted(ALL)


def test_every_module_of_a_command_is_one() -> None:
    defined = {
        path.stem for path in (ROOT / "crtexport" / "cli").glob("*.py")
        if re.search(r"^def command\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert defined == {name.split()[0] for name in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(cli, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"Usage: cli {command}" in result.output
    assert "--json" in result.output
    for parameter in ALL[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{command} {parameter.opts} has no help"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_tests_and_a_paragraph(command: str) -> None:
    assert (Path(__file__).parent / f"test_cli_{command.split(maxsplit=1)[0]}.py").is_file()
    assert f"crtexport {command}" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_option_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in ALL.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[-1] in text, f"{name} {parameter.opts}"


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert main(["--version"]) == 0
    text = capsys.readouterr().out
    assert "MODEL|COMMAND" in text
    assert crtexport.__version__ in text


def loaded_for(**variables: str) -> tuple[str, list[str]]:
    """Returns what the program writes, and which commands it imports for that."""
    program = (
        "import sys\nfrom crtexport.cli.main import COMMANDS, main\nsys.argv[0] = 'crtexport'\n"
        "try:\n    main()\nfinally:\n    sys.stderr.write(' '.join("
        "name for name in COMMANDS if f'crtexport.cli.{name}' in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *([] if variables else ["--help"])],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )
    return done.stdout, done.stderr.split()


def test_help_tells_of_every_command_and_imports_none() -> None:
    text, loaded = loaded_for()
    assert not loaded
    for name, words in SHORT.items():
        assert re.search(rf"^  {name} +{re.escape(words)}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "items", "imported"),
    [
        ("crtexport s", ["plain,schema", "plain,simulate"], []),
        ("crtexport --v", ["plain,--version"], []),
        ("crtexport model.tf", ["file,model.tf"], []),
        ("crtexport model.tflite --modul", ["plain,--module-name"], ["export"]),
        ("crtexport simulate --inp", ["plain,--input"], ["simulate"]),
    ],
)
def test_shells_complete_commands_models_and_options(
    words: str, items: list[str], imported: list[str]
) -> None:
    text, loaded = loaded_for(
        _CRTEXPORT_COMPLETE="bash_complete", COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert text.split() == items
    assert loaded == imported


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: crtexport" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["x.json", "--board", "host"], ["export", "x.json"], ["--board", "host", "x.json"]],
)
def test_a_first_argument_that_is_no_command_is_a_model(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: x.json")
    assert "No such file" in error or "no such file" in error.lower()


def test_a_mistyped_command_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulte", "x.tar"]) == 2
    assert "no command or model 'simulte'; did you mean 'simulate'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["boards", "--frobnicate"], "--frobnicate"),
        (["export"], "MODEL"),
        (["export", "m.json", "--emit", "java"], "'java' is not one of llvm, c"),
        (["boards", "-v", "-q"], "-v and -q exclude each other"),
        (["run", "p.tar", "--timeout", "0"], "0"),
        (["run", "p.tar", "--timeout", "nan"], "'nan' is no number of seconds"),
        (["run", "p.tar", "--timeout", "inf"], "inf is not in the range"),
        (["export", "m.json", "--llvm-timeout", "1e300"], "is not in the range"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_where_help_is(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.json", "p.tar"):
        Path(name).touch()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert re.search(rf"`crtexport {arguments[0]}( show)? --help` lists the options", captured.err)


def fails_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def listing() -> None:
        raise error

    monkeypatch.setattr("crtexport.cli.boards.list_boards", listing)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CrtExportError("bad", location=("a", "b\x1b"), hint="do"), 2),
        (ToolMissingError("bad", location=("a", "b\x1b"), hint="do"), 3),
        (RunFailedError("bad", location=("a", "b\x1b"), hint="do"), 1),
    ],
)
def test_an_error_is_words_and_an_exit_code(
    error: CrtExportError, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails_with(monkeypatch, error)
    assert main(["boards"]) == code
    assert capsys.readouterr() == ("", "error: a → b\\x1b: bad\n  hint: do\n")


@pytest.mark.parametrize(
    ("error", "code", "problem"),
    [
        (CrtExportError("bad", location=("a", "b\x1b"), hint="do"), 2, "bad"),
        (ToolMissingError("bad", location=("a", "b\x1b"), hint="do"), 3, "bad"),
        (RunFailedError("bad", location=("a", "b\x1b"), hint="do"), 1, "bad"),
        (ZeroDivisionError("x"), 70, "internal error (ZeroDivisionError: x)"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_with_json_an_error_is_an_object_on_stdout_and_words_on_stderr(
    error: BaseException, code: int, problem: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails_with(monkeypatch, error)
    assert main(["boards"]) == code
    words = capsys.readouterr().err
    assert main(["boards", "--json"]) == code
    captured = capsys.readouterr()
    assert captured.err == words
    told = json.loads(captured.out)["error"]
    assert (told["exit_code"], told["problem"]) == (code, problem)
    if isinstance(error, CrtExportError):
        assert (told["location"], told["hint"]) == (["a", "b\x1b"], "do")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--json", "--frobnicate"], "--frobnicate"),
        (["boards", "--frobnicate", "--json"], "--frobnicate"),
        (["export", "--json"], "MODEL"),
        (["boards", "-v", "-q", "--json"], "-v and -q exclude each other"),
        (["simulte", "--json"], "did you mean 'simulate'"),
    ],
)
def test_so_is_wrong_usage(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = json.loads(capsys.readouterr().out)["error"]
    assert problem in told["problem"]
    assert "--help` lists the options" in told["hint"]


def test_what_stands_behind_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["-", "--board", "host"], ["export", "-"], ["m.json", "-o", "-"], ["run", "-"],
        ["simulate", "-"], ["simulate", "p.tar", "--input", "-"], ["inspect", "-"],
        ["convert", "m.json", "-o", "-"], ["verify", "-"], ["unpack", "-", "d"],
        ["m.json", "--depfile", "-"], ["bench", "-", "--board", "host"],
    ],
)
def test_standard_input_and_output_are_no_files(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert "standard input and output can't be used" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [
    [str(DIGITS), "-o", ""], [str(DIGITS), "-o", "p.tar", "--unpack", ""],
    ["unpack", "PACKAGE", ""], ["build", "PACKAGE", "-o", ""], ["inspect", ""], ["simulate", ""],
])
def test_a_name_that_is_empty_is_none(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a variable leaves it that isn't set: it is not the current folder."""
    package = exported(tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert main([str(package) if word == "PACKAGE" else word for word in arguments]) == 2
    assert "the name is empty" in capsys.readouterr().err
    assert not [*here.iterdir()]


def test_a_model_in_a_pipe_is_refused_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    try:
        assert main([f"/dev/fd/{reading}", "--board", "host"]) == 2
    finally:
        os.close(reading)
    assert "save what comes through a pipe to a file first" in capsys.readouterr().err


def test_an_unexpected_error_is_short_unless_debugged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_with(monkeypatch, ZeroDivisionError("x\x1b"))
    assert main(["boards"]) == 70
    short = capsys.readouterr().err
    assert short.startswith("error: internal error (ZeroDivisionError: x\\x1b)\n  hint: ")
    assert "Traceback" not in short
    assert main(["boards", "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interruption_has_its_own_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_with(monkeypatch, KeyboardInterrupt())
    assert main(["boards"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_so_has_one_before_the_program_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted = ModuleType("crtexport.cli.main")

    def ask(name: str) -> object:
        raise KeyboardInterrupt(name)

    interrupted.__getattr__ = ask  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "crtexport.cli.main", interrupted)
    with pytest.raises(SystemExit) as left:
        __main__.run()
    assert left.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_output_that_finds_no_room_is_no_defect() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this computer has no /dev/full")
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "crtexport", "schema"], stdout=full, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, check=False,
        )
    assert process.returncode == 2
    assert process.stderr == "error: the output can't be written: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    ["schema", "boards", "boards host", "boards --json", "--help", "inspect {package}",
     "inspect {model} --stage kernels --board host", "simulate {package}",
     "{model} --board host --emit c -o {folder}/again.tar", "unpack {package} {folder}/unpacked"],
)
def test_a_reader_that_leaves_is_no_defect(words: str, tmp_path: Path) -> None:
    require("gcc")
    package = exported(tmp_path)
    arguments = words.format(package=package, model=DIGITS, folder=tmp_path).split()
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as left:  # noqa: PTH123
        process = subprocess.run(
            [sys.executable, "-m", "crtexport", *arguments], stdout=left,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, check=False,
        )
    assert process.stderr == b""
    assert process.returncode in (0, 1)


@pytest.mark.parametrize(("words", "code"), [(["nothing.json"], 2), (["boards", "--frob"], 2)])
def test_an_error_keeps_its_code_where_its_output_is_unread(words: list[str], code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as left:  # noqa: PTH123
        process = subprocess.run(
            [sys.executable, "-m", "crtexport", *words], stdout=left, stderr=left,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        )
    assert process.returncode == code


@pytest.mark.parametrize(("closed", "said"), [(">&-", ""), ("2>&-", "qemu_x86")])
def test_closed_streams_are_no_defect(closed: str, said: str) -> None:
    process = subprocess.run(
        ["bash", "-c", f'"$0" -m crtexport boards {closed}', sys.executable],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )
    assert said in process.stdout
    assert process.stderr == ""
    assert process.returncode == 0


def test_the_module_is_the_program(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "crtexport", "boards", "--json"], cwd=tmp_path, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )
    assert json.loads(process.stdout)["boards"]
    assert process.stderr == ""


@pytest.mark.parametrize(("ends", "code"), [("return 3", 3), ("raise ZeroDivisionError", 1)])
def test_the_process_ends_after_its_exit_handlers(ends: str, code: int) -> None:
    script = f"""
import atexit
from crtexport import __main__
from crtexport.cli import main as cli

def main():
    atexit.register(print, "then")
    print("first")
    {ends}

cli.main = main
__main__.run()
"""
    process = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )
    assert process.stdout == "first\nthen\n"
    assert process.returncode == code
    assert ("ZeroDivisionError" in process.stderr) == (code == 1)
