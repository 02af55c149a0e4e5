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
