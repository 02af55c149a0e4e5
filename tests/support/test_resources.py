"""Templates and boards are found in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from crtexport.support import resources
from crtexport.support.errors import CrtExportError


def test_a_checkout_uses_the_folders_beside_the_package() -> None:
    root = Path(resources.__file__).resolve().parents[2]
    if (root / "crtexport" / "_data").is_dir() or not (root / "pyproject.toml").is_file():
        pytest.skip("crtexport is installed, not a checkout")
    assert resources.templates_dir() == root / "templates"
    assert resources.boards_dir() == root / "boards"


def test_an_installed_package_uses_its_own_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "crtexport"
    for name in ("templates", "boards"):
        (package / "_data" / name).mkdir(parents=True)
        (tmp_path / "site-packages" / name).mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.templates_dir() == package / "_data" / "templates"
    assert resources.boards_dir() == package / "_data" / "boards"


def test_a_strange_folder_beside_an_installed_package_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "crtexport").mkdir()
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "crtexport")
    with pytest.raises(CrtExportError, match="'templates'") as caught:
        resources.templates_dir()
    assert "install crtexport again" in str(caught.value)


def test_templates_are_strict_and_escape_nothing() -> None:
    environment = resources.environment()
    assert environment.from_string('a < "{{ x }}"\n').render(x="<&>") == 'a < "<&>"\n'
    with pytest.raises(jinja2.UndefinedError):
        environment.from_string("{{ missing }}").render()
