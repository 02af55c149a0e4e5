"""``python -m tests.install``: what users install works, wherever they may install it.

The source distribution is built, checked as PyPI does, and unpacked for tests. The wheel made of
it is installed, each time into an environment of its own: with the lowest versions that
pyproject.toml allows, and with the newest on every Python that can be had. There all networks are
exported as C sources and as objects, and simulated: packages and outputs must be those of the
Python that runs this, and those recorded on devices. Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tests.helpers import FLOAT_NETWORKS, INT8_NETWORKS, ROOT, SHARED_MODELS, demanded
from tests.install import distribution
from tests.install.pythons import find_pythons
from tests.install.reports import Report, problems

DIGITS = ROOT / "docs" / "examples" / "digits" / "model.json"
_PROBE = Path(__file__).with_name("probe.py")
_SECONDS = 900


class Environment(NamedTuple):
    """An environment to be made of ``python`` in ``folder``."""

    name: str
    python: str
    folder: Path
    lowest: bool = False

    @property
    def made(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"


def run(arguments: Sequence[str | Path], **options: Any) -> str:
    """Returns what a program prints. Raises RuntimeError with its last words if it fails."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "CRTEXPORT_TFLITE_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        list(map(str, arguments)), capture_output=True, text=True, check=False, timeout=_SECONDS,
        env={**environment, **options.pop("env", {})}, stdin=subprocess.DEVNULL, **options,
    )
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise RuntimeError(f"{Path(arguments[0]).name} ended with {done.returncode}:\n{words}")
    return done.stdout


def find_uv() -> str:
    """The uv of this environment, or that of the computer."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    found = shutil.which("uv", path=path)
    if found is None:
        sys.exit("uv is missing: pip install uv")
    return found


def make(environment: Environment, wheel: Path, uv: str) -> None:
    """Fills an environment: the plain install, or the lowest versions."""
    run([uv, "venv", "-q", "--no-project", "--python", environment.python, environment.folder])
    install = [uv, "pip", "install", "-q", "--python", environment.made]
    if environment.lowest:
        # The lowest of what pyproject.toml names, the newest of what those need.
        run([*install, "--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml"])
        run([*install, "--no-deps", wheel])
    else:
        run([*install, wheel])


def probe(python: Path | str, folder: Path, models: Sequence[Path]) -> Report:
    """Returns what the probe reports of the crtexport that ``python`` has, without this checkout.
    """
    folder.mkdir()
    report: Report = json.loads(run([python, "-I", _PROBE, folder, *models], cwd=folder))
    if ROOT / "crtexport" in Path(report["where"]).parents:
        raise RuntimeError(f"the checkout was tried, not what is installed: {report['where']}")
    return report


def verify_reference(environment: Environment, cache: Path) -> str:
    """Lets an environment get the reference runtime and compare with it; why that can't be."""
    program = environment.folder / "bin" / "crtexport"
    try:
        run([program, "verify", "--install-reference", DIGITS], env={"XDG_CACHE_HOME": str(cache)})
    except RuntimeError as error:
        if "this computer has none of them" in str(error):
            return "tflite-runtime, for which there is no Python here"
        raise
    return ""


class Job:
    """All environments, what was found there, and what could not be tested."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.uv = folder, find_uv()
        self.untested: list[str] = []
        self.failed: dict[str, dict[str, str]] = {}
        self.rows: list[tuple[str, str, str, int]] = []
        found, missing = find_pythons(self.uv, folder / "pythons")
        self.untested += [f"Python 3.{minor}: {why}" for minor, why in missing.items()]
        lowest = min(found)
        self.environments = [
            Environment("lowest versions", found[lowest], folder / "lowest", lowest=True),
            *(
                Environment(f"newest versions, Python 3.{minor}", found[minor], folder / f"{minor}")
                for minor in found
            ),
        ]
        self.models, self.recorded = [DIGITS], {}
        if SHARED_MODELS.is_dir():
            names = (*INT8_NETWORKS, *FLOAT_NETWORKS)
            self.models += [SHARED_MODELS / f"{name}.tflite" for name in names]
            self.recorded = json.loads((SHARED_MODELS / "tflm_outputs.json").read_text())
        elif "models" in demanded():
            self.failed["networks"] = {"models": "../shared/models is not beside the checkout"}
        else:
            self.untested.append("the networks: ../shared/models is not beside the checkout")

    def run(self) -> None:
        """Everything, two environments at a time."""
        with ThreadPoolExecutor(2) as pool:
            ours_later = pool.submit(probe, sys.executable, self.folder / "ours", self.models)
            archive, wheel = distribution.build(ROOT, self.folder)
            reports = [pool.submit(self._report, e, wheel) for e in self.environments]
            ours = ours_later.result()
            for environment, later in zip(self.environments, reports, strict=True):
                try:
                    self._judge(environment.name, later.result(), ours)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    self.failed[environment.name] = {"installation": str(error)}
        self._judge("environment of the tests", ours, ours)
        self._published(archive, wheel)
        self._reference(self.environments[-1])

    def _report(self, environment: Environment, wheel: Path) -> Report:
        make(environment, wheel, self.uv)
        return probe(environment.made, environment.folder / "probed", self.models)

    def _judge(self, name: str, report: Report, ours: Report) -> None:
        wrong = problems(report, ours, self.recorded)
        good = len(report["results"]) - len(wrong)
        self.rows.append((name, report["python"], report["numpy"], good))
        if wrong:
            self.failed[name] = wrong

    def _published(self, archive: Path, wheel: Path) -> None:
        wrong = distribution.check(archive, wheel, self.folder)
        if wrong:
            self.failed["source distribution"] = wrong
        else:
            self.rows.append(("source distribution: twine check, its tests", "", "", 1))

    def _reference(self, environment: Environment) -> None:
        try:
            why = verify_reference(environment, self.folder / "cache")
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.failed["verify --install-reference"] = {environment.name: str(error)}
        else:
            if why:
                self.untested.append(why)
            else:
                self.rows.append((f"{environment.name}: verify --install-reference", "", "", 1))

    def show(self) -> int:
        """Prints what was found; 1 if something is wrong."""
        console = Console(width=120, highlight=False)
        table = Table("installed", "Python", "NumPy", "exported and simulated")
        for *texts, good in self.rows:
            table.add_row(*texts, str(good))
        console.print(table)
        for text in self.untested:
            console.print(f"not tested: {text}", soft_wrap=True, markup=False)
        for name, wrong in self.failed.items():
            for what, problem in wrong.items():
                console.print(f"FAILED {name}: {what}: {problem}", soft_wrap=True, markup=False)
        bad = sum(map(len, self.failed.values()))
        console.print(f"installs: {sum(row[3] for row in self.rows)} passed, {bad} failed")
        return 1 if bad else 0


def main() -> int:
    """Makes the environments in a temporary folder and tries them."""
    argparse.ArgumentParser(prog="python -m tests.install", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="crtexport-install-") as name:
        job = Job(Path(name))
        job.run()
        return job.show()


if __name__ == "__main__":
    sys.exit(main())
