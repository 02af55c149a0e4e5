"""An environment for a reference runtime, made on request: complete or not there at all."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from crtexport.cli.main import main
from crtexport.ir.numerics import Numerics
from crtexport.simulation import runtimes
from crtexport.support.errors import CrtExportError, ToolMissingError
from tests.cli.support import DIGITS
from tests.reference.test_runtimes import nowhere

KIND = runtimes.KINDS["tflite-runtime"]


def wheel(folder: Path, name: str, version: str) -> None:
    """A package that pip can install, with nothing in it."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", "")
        for entry, lines in (
            ("METADATA", ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}")),
            ("WHEEL", ("Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any")),
            ("RECORD", ()),
        ):
            file.writestr(f"{info}/{entry}", "".join(f"{line}\n" for line in lines))


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache; pip takes packages from the folder ``wheels`` and nowhere else."""
    (tmp_path / "wheels").mkdir()
    nowhere(monkeypatch, tmp_path / "cache")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    # For this Python, whichever it is.
    monkeypatch.setitem(
        runtimes.KINDS, "tflite-runtime", replace(KIND, pythons=(sys.version_info[1],))
    )
    return tmp_path / "cache" / "crtexport"


def test_the_environment_has_the_pinned_packages_and_is_found_from_then_on(
    cache: Path, tmp_path: Path
) -> None:
    for name, version in (("tflite_runtime", "2.14.0"), ("numpy", "1.26.4"), ("numpy", "2.4.0")):
        wheel(tmp_path / "wheels", name, version)
    made = runtimes.install(runtimes.runtime_of(Numerics.TFLITE))
    assert made.python == str(cache / "tflite-runtime-2.14.0" / "bin" / "python")
    assert made == runtimes.find_reference(Numerics.TFLITE)
    assert [path.name for path in cache.iterdir()] == ["tflite-runtime-2.14.0"]
    look = "import importlib.metadata as m; print(m.version('tflite-runtime'), m.version('numpy'))"
    done = subprocess.run([made.python, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.14.0", "1.26.4"]
    before = (cache / "tflite-runtime-2.14.0").stat()
    assert runtimes.install("tflite-runtime") == made
    assert (cache / "tflite-runtime-2.14.0").stat() == before


def test_packages_that_cannot_be_had_leave_nothing_and_end_verify_with_3(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(DIGITS), "--install-reference"]) == 3
    error = capsys.readouterr().err
    assert "tflite-runtime can't be installed" in error
    assert "No matching distribution" in error
    assert list(cache.iterdir()) == []


def test_verify_installs_nothing_unasked(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DIGITS)]) == 3
    assert "--install-reference" in capsys.readouterr().err
    assert not cache.exists()


def test_a_python_that_the_environment_names_needs_no_other(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRTEXPORT_TFLITE_PYTHON", "/opt/tflite/bin/python")
    assert runtimes.install("tflite-runtime").python == "/opt/tflite/bin/python"
    assert not cache.exists()


def test_without_a_python_that_fits_the_versions_are_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runtimes.KINDS, "tflite-runtime", replace(KIND, pythons=(2, 1)))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissingError, match=r"needs Python 3\.1, 3\.2, and this computer has"):
        runtimes.install("tflite-runtime")
    assert list(cache.iterdir()) == []


def test_without_a_home_nothing_is_installed_and_nothing_found(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME")
    with pytest.raises(CrtExportError, match="no folder for the environment") as caught:
        runtimes.install("tflite-runtime")
    assert "XDG_CACHE_HOME" in str(caught.value)
    with pytest.raises(ToolMissingError, match="tflite-runtime is not installed"):
        runtimes.find_runtime("tflite-runtime")


def test_a_cache_that_cannot_be_written_is_named(cache: Path) -> None:
    cache.parent.write_text("a file")
    with pytest.raises(CrtExportError, match=r"can't be made \(Not a directory\)") as caught:
        runtimes.install("tflite-runtime")
    assert "XDG_CACHE_HOME" in str(caught.value)
