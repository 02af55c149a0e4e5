"""DSP and saturation, also for compilers that have ACLE's header and not GNU's assembly, as IAR's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crtexport.backends.c.helpers import intrinsic_key, saturation_key, select_helpers
from crtexport.kir.intrinsics.arm_dsp import ARM_DSP
from crtexport.kir.language import Scalar
from tests.backends.c.c_support import run_tool
from tests.helpers import require

CALLS = {
    "sxtb16": ("arm_sxtb16", "crt_sxtb16(x)"),
    "sxtb16 ror": ("arm_sxtb16_ror8", "crt_sxtb16_ror8(x)"),
    "sadd16": ("arm_sadd16", "crt_sadd16(x, y)"),
    "ssub16": ("arm_ssub16", "crt_ssub16(x, y)"),
    "smlad": ("arm_smlad", "crt_smlad(x, y, z)"),
    "smlabb": ("arm_smlabb", "crt_smlabb(x, y, z)"),
    "smlabt": ("arm_smlabt", "crt_smlabt(x, y, z)"),
    "smlatb": ("arm_smlatb", "crt_smlatb(x, y, z)"),
    "smlatt": ("arm_smlatt", "crt_smlatt(x, y, z)"),
    "smlald": ("arm_smlald", "(int32_t)crt_smlald(x, y, (int64_t)z)"),
}


def assembly(key: str, expression: str, folder: Path) -> str:
    """The instructions of a function, of a compiler that doesn't claim to be GNU's."""
    require("clang")
    helpers = select_helpers([key])
    source = folder / "function.c"
    source.write_text("\n".join([
        "#include <stdint.h>", *(h.include for h in helpers), *(h.text for h in helpers),
        "int32_t f(int32_t x, int32_t y, int32_t z);",
        "int32_t f(int32_t x, int32_t y, int32_t z)", "{",
        "    (void)y;", "    (void)z;", f"    return {expression};", "}", "",
    ]))
    text = run_tool(
        "clang", "--target=arm-none-eabi", "-mcpu=cortex-m4", "-mthumb", "-ffreestanding", "-O1",
        "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-U__GNUC__", "-S", source,
        "-o", "-",
    )
    assert "@APP" not in text, "assembly of GNU's"
    return text


@pytest.mark.parametrize("instruction", CALLS)
def test_dsp_instructions_come_from_acle(instruction: str, tmp_path: Path) -> None:
    name, expression = CALLS[instruction]
    mnemonic, _, rotation = instruction.partition(" ")
    found = re.findall(rf"^\s+{mnemonic}\s.*$", assembly(intrinsic_key(name), expression, tmp_path),
                       re.MULTILINE)
    assert len(found) == 1
    assert rotation in found[0]


@pytest.mark.parametrize(("dtype", "bits"), [(Scalar.I8, 8), (Scalar.I16, 16)])
def test_saturation_comes_from_acle(dtype: Scalar, bits: int, tmp_path: Path) -> None:
    key = saturation_key(dtype)
    assert re.search(rf"ssat\s+r0, #{bits}, r0", assembly(key, f"crt_{key}(x)", tmp_path))


def test_every_helper_compiles_to_what_gnu_assembles(tmp_path: Path) -> None:
    require("arm-none-eabi-gcc")
    helpers = select_helpers([intrinsic_key(one.name) for one in ARM_DSP])
    source = tmp_path / "helpers.c"
    source.write_text("\n".join([
        "#include <stdint.h>", *(h.include for h in helpers), *(h.text for h in helpers),
        "int32_t rounded(float x);", "int32_t rounded(float x)", "{",
        "    return crt_vcvtr(x);", "}", "",
    ]))
    text = run_tool(
        "arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard",
        "-mfpu=fpv4-sp-d16", "-O1", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror",
        "-Wno-unused-function", "-S", source, "-o", "-",
    )
    assert re.search(r"vcvtr\.s32\.f32 s0, s0\n\s+vmov r0, s0", text)
