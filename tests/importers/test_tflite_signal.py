"""Operators of TensorFlow Lite Micro's signal library that can't be exported are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crtexport.importers import load
from crtexport.ir.types import DType
from crtexport.lowering.operator_table import check
from crtexport.lowering.registry import Context
from crtexport.support.errors import CrtExportError
from tests.differential.cases_signal import signal
from tests.tflite_builder import ModelBuilder


def window(shift: int) -> bytes:
    m = ModelBuilder()
    x, w, y = (m.tensor(name, (3,), "int16") for name in "xwy")
    signal(m, "Window", [x, w], [y], shift=shift)
    return m.build([x, w], [y])


def bank(
    weights: list[int], widths: list[int], channels: int = 2, complements: list[int] | None = None
) -> bytes:
    """A filter bank over 4 bins."""
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "uint32"), m.tensor("y", (2,), "uint64")
    tables = [
        m.tensor(f"t{i}", (len(table),), "int16", data=table)
        for i, table in enumerate(
            (weights, complements or weights, [0, 0, 0], [0, 1, 2], widths)
        )
    ]
    signal(m, "FilterBank", [x, *tables], [y], num_channels=channels)
    return m.build([x], [y])


def root_of_input() -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (4,), "uint64"), m.tensor("y", (4,), "uint32")
    bits = m.tensor("bits", (), "int32")
    signal(m, "FilterBankSquareRoot", [x, bits], [y])
    return m.build([x, bits], [y])


def energy(end: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (6,), "int16"), m.tensor("y", (3,), "uint32")
    signal(m, "Energy", [x], [y], start_index=1, end_index=end)
    return m.build([x], [y])


def transform(name: str, length: int, given: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (given,), "int16"), m.tensor("y", (length + 2,), "int16")
    signal(m, name, [x], [y], T=7, fft_length=length)
    return m.build([x], [y])


def pcan(gains: int, shift: int) -> bytes:
    m = ModelBuilder()
    x, noise, y = (m.tensor(name, (3,), "uint32") for name in ("x", "noise", "y"))
    table = m.tensor("gains", (gains,), "int16", data=range(gains))
    signal(m, "PCAN", [x, noise, table], [y], snr_shift=shift)
    return m.build([x, noise], [y])


def delay(count: int, dtype: str = "int16", results: int = 1) -> bytes:
    m = ModelBuilder()
    x, y = (m.tensor(name, (4,), dtype) for name in "xy")
    signal(m, "Delay", [x], [y] * results, delay_length=count)
    return m.build([x], [y])


def subtraction(channels: int) -> bytes:
    m = ModelBuilder()
    x, y, noise = (m.tensor(name, (4,), "uint32") for name in ("x", "y", "noise"))
    keys = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "smoothing_bits", "clamping",
            "alternate_one_minus_smoothing", "min_signal_remaining", "spectral_subtraction_bits")
    options = dict.fromkeys(keys, 1)
    signal(m, "FilterBankSpectralSubtraction", [x], [y, noise], num_channels=channels, **options)
    return m.build([x], [y, noise])


def frames(name: str, given: int, out: tuple[int, ...], **options: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", (given,), "int16"), m.tensor("y", out, "int16")
    valid = m.tensor("valid", (), "bool")
    signal(m, name, [x], [y, valid], **options)
    return m.build([x], [y, valid])


def framer(given: int, size: int, step: int, *, prefill: bool = False) -> bytes:
    return frames("Framer", given, (given // step, size), frame_size=size, frame_step=step,
                  prefill=prefill)


def stacker(channels: int, step: int, out: int = 12) -> bytes:
    return frames("Stacker", 4, (out,), num_channels=channels, stacker_left_context=1,
                  stacker_right_context=1, stacker_step=step)


def overlap(shape: tuple[int, ...], step: int) -> bytes:
    m = ModelBuilder()
    x, y = m.tensor("x", shape, "int16"), m.tensor("y", (4,), "int16")
    signal(m, "OverlapAdd", [x], [y], T=7, frame_step=step)
    return m.build([x], [y])


def problems(content: bytes, folder: Path) -> str:
    """Returns what keeps a network from being exported; "" where nothing does."""
    path = folder / "model.tflite"
    path.write_bytes(content)
    try:
        graph = load(path)
    except CrtExportError as error:
        return str(error)
    return "; ".join(line for node in graph.nodes for line in check(Context(graph, node)))


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: window(32), "must be from 0 to 31"),
    (lambda: bank([1, -2, 3, 4], [1, 2, 2]), "found negative weights"),
    (lambda: bank([1, 2, 3, 4], [1, 2, 2], complements=[1, 2, 3, -4]), "found negative weights"),
    (lambda: bank([1, 2, 3, 4], [1, 5, 2]), "found channels beyond the 4 bins"),
    (lambda: bank([1, 2, 3, 4], [1, 2, 3]), "found channels beyond the 4 weights"),
    (lambda: bank([1, 2, 3, 4], [1, -2, 1]), "found negative numbers of bins or weights"),
    (lambda: bank([1, 2, 3, 4], [1, 2, 2], 3), "3 channels have tables of 3"),
    (root_of_input, "the element type UINT64 is not supported"),
    (lambda: energy(4), "bins 1 to 4 of int16"),
    (lambda: transform("Rfft", 14, 14), "the length 14 is not twice a product of 2, 3 and 5"),
    (lambda: transform("Rfft", 2, 2), "the length 2 is not twice a product of 2, 3 and 5"),
    (lambda: transform("Rfft", 1 << 30, 4), "transforms have at most 65536 samples"),
    (lambda: transform("Rfft", 8, 9), "rows of more than 8 samples"),
    (lambda: transform("Irfft", 8, 8), "no rows of 5 bins"),
    (lambda: pcan(124, 6), "a table of gains has 125 elements"),
    (lambda: pcan(125, 33), "found 33 and 0"),
    (lambda: subtraction(5), "5 channels for uint32"),
    (lambda: delay(-1), "delay_length must be from 0"),
    (lambda: delay(3, "int32"), "result 0 is int32"),
    (lambda: delay(3, results=2), "2 results for int16"),
    (lambda: framer(6, 9, 4), "6 samples are no multiple of frames 4 apart"),
    (lambda: framer(6, 2, 3, prefill=True), "frame_size must be from 3"),
    (lambda: framer(300, 2, 1), "the number of frames must be from 1 to 256"),
    (lambda: stacker(4, 4), "stacker_step must be from 1 to 3"),
    (lambda: stacker(3, 1), "3 channels for int16"),
    (lambda: stacker(4, 1, 8), r"result 0 is int16[8], not int16[12]"),
    (lambda: overlap((4,), 2), "has no frames"),
    (lambda: overlap((2, 4), 5), "frame_step must be from 1 to 4"),
])
def test_what_would_not_be_as_in_the_library_is_refused(
    make: Callable[[], bytes], expected: str, tmp_path: Path
) -> None:
    assert expected in problems(make(), tmp_path)


def test_sums_of_64_bits_are_signed(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(bank([1, 2, 3, 4], [1, 2, 2]))
    graph = load(path)
    assert graph.type(graph.outputs[0]).dtype is DType.INT64
    assert not problems(path.read_bytes(), tmp_path)
