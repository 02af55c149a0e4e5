"""The names of processors and features that boards may have are those that LLVM lists."""

from __future__ import annotations

import json

import pytest

from crtexport.firmware.board_rules import ETHOS_U
from crtexport.firmware.cpu_rules import NAMES, families
from tests.boards import llvm_names
from tests.helpers import require_module


@pytest.mark.parametrize("family", llvm_names.TRIPLES)
def test_the_names_are_llvms(family: str, request: pytest.FixtureRequest) -> None:
    """``pytest --update-golden`` writes them."""
    if request.config.getoption("--update-golden"):
        data = json.loads(NAMES.read_text()) if NAMES.is_file() else {}
        data[family] = llvm_names.asked(family)
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(data[key])}" for key in sorted(data))
        NAMES.write_text(f"{{\n{lines}\n}}\n")
        return
    # Which architecture a processor is of matters for Arm's: for others their being there does.
    found = llvm_names.asked(family, each=family == "arm")
    known = families()[family]
    assert list(known.features) == found["features"]
    if family == "arm":
        assert known.processors == found["processors"]
    assert set(known.processors) <= set(found["processors"])


def test_velas_configurations_are_those_that_vela_takes() -> None:
    require_module("ethosu")
    from ethosu.vela.architecture_features import Accelerator

    assert set(ETHOS_U) == set(Accelerator.member_list())
