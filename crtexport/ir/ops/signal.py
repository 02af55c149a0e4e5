"""Operators of audio front ends: from samples to logarithms of energies in bands of frequencies.

They are those of TensorFlow Lite Micro's signal library, all of whole numbers: spectra are complex,
real and imaginary part by turns along the last axis.
"""

from __future__ import annotations

from crtexport.ir.ops.base import Op


class Window(Op, frozen=True):
    """Samples, along the last axis, times weights >> ``shift``, saturated."""

    shift: int


class FftAutoScale(Op, frozen=True):
    """Samples shifted to the left as far as the largest one lets them; the second output is by how
    many bits."""


class Energy(Op, frozen=True):
    """The squared magnitudes of a spectrum from bin ``start`` to before ``end``; 0 elsewhere."""

    start: int
    end: int


class FilterBank(Op, frozen=True):
    """Weighted sums of neighbouring bins. Inputs after the bins are constants: weights, their
    complements to 1, and of each channel, and one more in front, the first bin, the first weight
    and the number of them. A channel is the sum of its own weighted bins, and of those of the
    channel before it by the complements."""


class FilterBankSquareRoot(Op, frozen=True):
    """Square roots, rounded, of numbers from 0 on, shifted to the right by the second input."""


class FilterBankLog(Op, frozen=True):
    """Natural logarithms of x << ``input_correction_bits``, times ``output_scale``; 0 of 0."""

    output_scale: int
    input_correction_bits: int


class Rfft(Op, frozen=True):
    """The spectrum, ``length`` / 2 + 1 bins, of each row of samples, which zeros fill up to
    ``length``; of whole numbers it is divided by ``length`` and rounded as kissfft does."""

    length: int


class Irfft(Op, frozen=True):
    """The ``length`` samples whose spectrum is a row of ``length`` / 2 + 1 bins; whole numbers are
    rounded as kissfft does."""

    length: int


class FilterBankSpectralSubtraction(Op, frozen=True):
    """Numbers without the noise in them, and the noise: of the second input, the noise before, it
    is the moving average, with other weights in channels of odd number. Weights have
    ``spectral_subtraction_bits`` binary places, the noise has ``smoothing_bits``. No less is left
    than ``min_signal_remaining`` of a number; with ``clamping`` the noise stays at or below it."""

    smoothing: int
    one_minus_smoothing: int
    alternate_smoothing: int
    alternate_one_minus_smoothing: int
    min_signal_remaining: int
    smoothing_bits: int
    spectral_subtraction_bits: int
    clamping: bool = False


class Pcan(Op, frozen=True):
    """Numbers times gains, which are a function of the noise, the second input, that the third one
    has in its table; shifted to the right by ``snr_shift``, and small ones made smaller."""

    snr_shift: int


class OverlapAdd(Op, frozen=True):
    """Frames, (..., count, size), added up ``step`` apart, from the left onto what is left of
    former ones, the second input, (..., size - ``step``): finished samples, and what is left. Sums
    of int16 are saturated."""

    step: int
