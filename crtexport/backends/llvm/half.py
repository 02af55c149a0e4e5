"""Conversions to and from half precision, for processors that have no instruction for them.

LLVM would call the compiler's runtime library, which not every C toolchain brings. These helper
functions round to nearest, ties to even, as the hardware does.
"""

from __future__ import annotations

from crtexport.backends.llvm.types import ModuleText

_FROM_HALF = """\
define internal float @crt_f32_from_f16(i16 noundef %h) #0 section ".text.crt_f32_from_f16" {
  %wide = zext i16 %h to i32
  %high = shl i32 %wide, 16
  %sign = and i32 %high, -2147483648
  %rest = and i32 %wide, 32767
  %moved = shl i32 %rest, 13
  %normal = add i32 %moved, 939524096
  %top = add i32 %moved, 1879048192
  %is_top = icmp uge i32 %rest, 31744
  %large = select i1 %is_top, i32 %top, i32 %normal
  %shifted = add i32 %moved, 947912704
  %shifted_real = bitcast i32 %shifted to float
  %small_real = fsub float %shifted_real, 0x3F10000000000000
  %small = bitcast float %small_real to i32
  %is_small = icmp ult i32 %rest, 1024
  %magnitude = select i1 %is_small, i32 %small, i32 %large
  %bits = or i32 %magnitude, %sign
  %result = bitcast i32 %bits to float
  ret float %result
}
"""

_TO_HALF = """\
define internal i16 @{name}({real} noundef %x) #0 section ".text.{name}" {{
  %bits = bitcast {real} %x to {int}
  %sign_high = lshr {int} %bits, {sign_shift}
  %sign_narrow = trunc {int} %sign_high to i16
  %sign = and i16 %sign_narrow, -32768
  %a = and {int} %bits, {abs_mask}
  %down = lshr {int} %a, {shift}
  %odd = and {int} %down, 1
  %rebiased = sub {int} %a, {rebias}
  %biased = add {int} %rebiased, {half_ulp}
  %rounded = add {int} %biased, %odd
  %normal_wide = lshr {int} %rounded, {shift}
  %normal = trunc {int} %normal_wide to i16
  %a_real = bitcast {int} %a to {real}
  %sum = fadd {real} %a_real, {magic}
  %sum_bits = bitcast {real} %sum to {int}
  %small = trunc {int} %sum_bits to i16
  %is_small = icmp ult {int} %a, {smallest_normal}
  %finite = select i1 %is_small, i16 %small, i16 %normal
  %is_top = icmp uge {int} %a, {overflow}
  %number = select i1 %is_top, i16 31744, i16 %finite
  %is_nan = icmp ugt {int} %a, {infinity}
  %payload_wide = lshr {int} %a, {shift}
  %payload_narrow = trunc {int} %payload_wide to i16
  %payload = and i16 %payload_narrow, 511
  %nan = or i16 %payload, 32256
  %magnitude = select i1 %is_nan, i16 %nan, i16 %number
  %result = or i16 %magnitude, %sign
  ret i16 %result
}}
"""


def from_half(module: ModuleText) -> str:
    """Returns the name of a function ``float (i16)``, added to ``module``."""
    module.helpers.setdefault("crt_f32_from_f16", _FROM_HALF)
    return "crt_f32_from_f16"


def to_half(module: ModuleText, real: str) -> str:
    """Returns the name of a function ``i16 (real)``, added to ``module``; ``real`` is float or
    double.

    ``magic`` is the power of two whose last place is half's smallest subnormal: adding it rounds.
    """
    if real == "float":
        name, bits, fraction, bias, magic = "crt_f16_from_f32", 32, 23, 127, 0x3FE0000000000000
    else:
        name, bits, fraction, bias, magic = "crt_f16_from_f64", 64, 52, 1023, 0x41B0000000000000
    shift = fraction - 10
    infinity = ((1 << (bits - 1 - fraction)) - 1) << fraction
    module.helpers.setdefault(name, _TO_HALF.format(
        name=name, real=real, int=f"i{bits}", sign_shift=bits - 16, shift=shift,
        abs_mask=(1 << (bits - 1)) - 1, rebias=(bias - 15) << fraction,
        half_ulp=(1 << (shift - 1)) - 1, smallest_normal=(bias - 14) << fraction,
        overflow=((bias + 15) << fraction) + (((1 << 11) - 1) << (shift - 1)), infinity=infinity,
        magic=f"0x{magic:016X}",
    ))
    return name
