"""Exports: nothing is written unless the proofs that are made while LLVM works succeed."""

from __future__ import annotations

from pathlib import Path

import pytest

import crtexport
from crtexport import pipeline
from crtexport.artifact import calls
from crtexport.errors import CrtExportError
from tests.several.networks import WEIGHTS, network


@pytest.mark.parametrize("emit", ["c", "llvm"])
@pytest.mark.parametrize(
    ("module", "name"), [(pipeline.plan_check, "check"), (calls, "verify")], ids=["plan", "kernels"]
)
def test_what_is_not_sound_is_not_exported(
    module: object, name: str, emit: pipeline.Emit, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise CrtExportError("this is not sound")

    monkeypatch.setattr(module, name, refused)
    model = network(tmp_path, "small", WEIGHTS)
    with pytest.raises(CrtExportError, match="this is not sound"):
        crtexport.export(model, board="host", emit=emit, output=tmp_path / "small.tar")
    assert not (tmp_path / "small.tar").exists()
    with pytest.raises(CrtExportError, match="this is not sound"):
        pipeline.prepare(pipeline.load(model), pipeline.resolve_board("host"))
