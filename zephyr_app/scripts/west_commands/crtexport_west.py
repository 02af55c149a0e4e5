"""``west crtexport``: the exporter's commands about Zephyr, from inside a workspace."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from west.commands import WestCommand

CHECKOUT = Path(__file__).resolve().parents[3]


class Crtexport(WestCommand):
    """Words for west; what is done is the exporter's."""

    def __init__(self) -> None:
        super().__init__(
            "crtexport",
            "export neural networks for the boards of this workspace",
            "Exports networks as static code for exactly what a build is configured for, "
            "and says what they take in its image.",
            accepts_unknown_args=True,
        )

    def do_add_parser(self, parser_adder):
        parser = parser_adder.add_parser(
            self.name, help=self.help, description=self.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="export|boards|report")
        export = verbs.add_parser(
            "export", help="export a model for a build's processor and memories",
            description="Further options are those of `crtexport export`: -o FILE, --emit c ...",
        )
        export.add_argument("model", help="a model.json or .tflite file")
        self._build_option(export)
        boards = verbs.add_parser(
            "boards", help="list boards that Zephyr and the exporter know, or derive one",
            description="Without -d: which of the exporter's boards are which of Zephyr's. "
            "With -d: the board file that is derived from that build.",
        )
        boards.add_argument("-d", "--build-dir", help="a build whose board is derived")
        report = verbs.add_parser(
            "report", help="flash and RAM of a built image by model, layer and rest"
        )
        self._build_option(report)
        return parser

    @staticmethod
    def _build_option(parser):
        parser.add_argument(
            "-d", "--build-dir", default="build", help="where it was built (default: build)"
        )

    def do_run(self, args, unknown):
        program, variables = exporter()
        if program is None:
            self.die(
                f"the exporter is not there: neither {sys.executable} can run it nor is a program "
                f"crtexport in the search path; `{sys.executable} -m pip install {CHECKOUT}` "
                "installs it for west"
            )
        for words in commands(args, unknown):
            self.dbg(" ".join([*program, *words]))
            status = subprocess.run([*program, *words], env=variables, check=False).returncode
            if status:
                sys.exit(status)


def commands(args, unknown):
    """The exporter's command lines for what was typed after ``west crtexport``."""
    if args.verb == "export":
        board = str(Path(args.build_dir) / "crtexport" / "board.yaml")
        return [
            ["zephyr", "board", args.build_dir, "-o", board, "-q"],
            ["export", args.model, "--board", board, *unknown],
        ]
    if args.verb == "boards" and args.build_dir:
        return [["zephyr", "board", args.build_dir, *unknown]]
    if args.verb == "boards":
        return [["zephyr", "boards", *unknown]]
    return [["zephyr", "report", args.build_dir, *unknown]]


def exporter():
    """The command that runs the exporter, and its environment: this checkout's by the Python of
    west, else the program in the search path; (None, None) without either."""
    own = [sys.executable, "-m", "crtexport"]
    variables = environment()
    probe = subprocess.run(
        [*own, "--version"], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        check=False,
    )
    if probe.returncode == 0:
        return own, variables
    found = shutil.which("crtexport")
    return ([found], dict(os.environ)) if found else (None, None)


def environment():
    """This process's, in which the exporter of this checkout comes first."""
    found = dict(os.environ)
    if (CHECKOUT / "crtexport" / "__main__.py").is_file():
        paths = [str(CHECKOUT), found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return found
