"""An audio front end as a whole, exported: frame by frame what TensorFlow Lite Micro gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import crtexport
from tests.differential.cases_signal import bank, signal
from tests.differential.draw import SeededDraw, values
from tests.helpers import reference
from tests.tflite_builder import ModelBuilder

LENGTH, SAMPLES, FRAMES = 32, 27, 6


def front_end(seed: int) -> bytes:
    """From samples to logarithms of energies of two frames, as micro_speech has them, and what the
    library has besides."""
    draw, bins = SeededDraw(seed), LENGTH // 2 + 1
    m = ModelBuilder()
    x, late, weighted, scaled = (
        m.tensor(name, (SAMPLES,), "int16") for name in ("x", "late", "weighted", "scaled")
    )
    weights = m.tensor("w", (SAMPLES,), "int16", data=values(draw, (SAMPLES,), "int16"))
    bits, valid = m.tensor("bits", (), "int32"), m.tensor("valid", (), "bool")
    spectrum = m.tensor("spectrum", (LENGTH + 2,), "int16")
    energies = m.tensor("energies", (bins,), "uint32")
    signal(m, "Delay", [x], [late], delay_length=5)
    signal(m, "Window", [late, weights], [weighted], shift=12)
    signal(m, "FftAutoScale", [weighted], [scaled, bits])
    signal(m, "Rfft", [scaled], [spectrum], T=7, fft_length=LENGTH)
    signal(m, "Energy", [spectrum], [energies], start_index=0, end_index=bins)
    sums, channels = bank(m, draw, energies, bins)
    roots, clean, noise, gained = (
        m.tensor(name, (channels,), "uint32") for name in ("roots", "clean", "noise", "gained")
    )
    signal(m, "FilterBankSquareRoot", [sums, bits], [roots])
    signal(
        m, "FilterBankSpectralSubtraction", [roots], [clean, noise], num_channels=channels,
        smoothing=409, one_minus_smoothing=15975, alternate_smoothing=983, clamping=False,
        alternate_one_minus_smoothing=15401, min_signal_remaining=819, smoothing_bits=10,
        spectral_subtraction_bits=14,
    )
    gains = m.tensor("gains", (125,), "int16", data=values(draw, (125,), "int16") & 0x7FFF)
    signal(m, "PCAN", [clean, noise, gains], [gained], snr_shift=6)
    logs, stacked = m.tensor("logs", (channels,), "int16"), m.tensor("y", (2 * channels,), "int16")
    signal(m, "FilterBankLog", [gained], [logs], output_scale=64, input_correction_bits=3)
    signal(
        m, "Stacker", [logs], [stacked, valid], num_channels=channels, stacker_left_context=1,
        stacker_right_context=0, stacker_step=1,
    )
    return m.build([x], [stacked])


@pytest.mark.parametrize("emit", ["c", "llvm"])
def test_each_frame_gives_what_tflite_micro_gives(emit: str, tmp_path: Path) -> None:
    content = front_end(3)
    (tmp_path / "front_end.tflite").write_bytes(content)
    package = crtexport.export(
        tmp_path / "front_end.tflite", emit=emit, output=tmp_path / "front_end.tar"
    )
    x = np.stack([values(SeededDraw(seed), (SAMPLES,), "int16") for seed in range(FRAMES)])
    model = reference(content, "tflite-micro")
    rows = crtexport.simulate(package.path, {"x": x})
    for row, frame in zip(rows, x, strict=True):
        (expected,) = model.run([frame])
        assert expected.any()
        np.testing.assert_array_equal(row["y"], expected)
