"""A network that listens, in firmware: a further result costs little more than its new frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from crtexport.pipeline.options import ExportOptions
from crtexport.reports.bench import bench
from crtexport.reports.measure import MeasureSetting
from tests.lowering.rows.research import tcn
from tests.plan.execute import execute

NETWORK = tcn(68, 8, 8, causal=False)


@pytest.mark.qemu
@pytest.mark.parametrize(("emit", "workspace"), [("llvm", "static"), ("c", "caller")])
def test_firmware_goes_on_from_one_window_to_the_next(
    emit: str, workspace: str, tmp_path: Path
) -> None:
    """It compares the result of a window that others came before with that of the window alone."""
    package = tmp_path / "listens.tar"
    crtexport.export(
        NETWORK, board="mps2_an386", stream=True, emit=emit, workspace=workspace, output=package
    )
    x = np.random.default_rng(0).integers(-128, 128, (1, 68, 1, 8)).astype(np.int8)
    result = crtexport.run(package, {"t0": x[None]})
    np.testing.assert_array_equal(result.outputs[0][0], execute(NETWORK, [x])[0])
    assert result.instructions_first == result.instructions_second
    assert result.instructions_further is not None
    assert result.instructions_second is not None
    assert result.instructions_further * 10 < result.instructions_second


@pytest.mark.qemu
def test_a_benchmark_has_the_instructions_of_a_further_result() -> None:
    result = bench(MeasureSetting(NETWORK, "mps2_an386", ExportOptions(stream=True)))
    assert result.further is not None
    assert result.second is not None
    assert result.further * 10 < result.second
