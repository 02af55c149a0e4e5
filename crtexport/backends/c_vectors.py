"""C of vectors: their types, loads and stores.

C sources of a board also run on other computers, for simulation: where there is no MVE, a vector is
an array in a struct, and what is done with it a loop.
"""

from __future__ import annotations

from crtexport.backends.c_literals import STORAGE
from crtexport.kernels.ir import LANE_SOURCES, Scalar

TYPES = "vectors"
"""The key of the types."""

_BITS = {1: "b", 2: "h", 4: "w"}
_INTEGERS = "defined(__ARM_FEATURE_MVE)"
_FLOATS = f"{_INTEGERS} && (__ARM_FEATURE_MVE & 2)"


def vector_type(type_: Scalar) -> str:
    """The C name of a vector type."""
    return f"crt_{type_.value}"


def arm_suffix(type_: Scalar) -> str:
    """How ``arm_mve.h`` calls the lanes: ``s8``, ``f32``."""
    return f"{'f' if type_.is_float else 's'}{8 * type_.lane.itemsize}"


def condition(type_: Scalar) -> str:
    """The preprocessor's question whether the processor has such vectors."""
    return _FLOATS if type_.is_float else _INTEGERS


def types_text() -> str:
    """The types, on machines with and without vectors."""
    lines = [
        "/* Vectors of 128 bits; arrays where the processor has none. */",
        "#if defined(__ARM_FEATURE_MVE)",
        "#include <arm_mve.h>",
    ]
    vectors = list(LANE_SOURCES)
    integers = [v for v in vectors if not v.is_float]
    for type_ in integers:
        lines.append(f"typedef {type_.lane.value.replace('i', 'int')}x{type_.lanes}_t "
                     f"{vector_type(type_)};")
    lines.append("#else")
    lines += [_portable(type_) for type_ in integers]
    lines += ["#endif", f"#if {_FLOATS}"]
    floats = [v for v in vectors if v.is_float]
    lines += [f"typedef float32x{v.lanes}_t {vector_type(v)};" for v in floats]
    lines += ["#else", *(_portable(v) for v in floats), "#endif"]
    return "\n".join(lines) + "\n"


def _portable(type_: Scalar) -> str:
    return (
        f"typedef struct {{ {STORAGE[type_.lane]} lane[{type_.lanes}]; }} {vector_type(type_)};"
    )


def access_key(type_: Scalar, element: Scalar, *, stores: bool) -> str:
    """The key of the function that loads or stores vectors of ``type_`` from such elements; also
    its name after ``crt_``."""
    return f"{'store' if stores else 'load'}_{type_.value}_{element.value}"


def accesses() -> dict[str, str]:
    """The text of every such function by its key."""
    found = {}
    for type_, elements in LANE_SOURCES.items():
        for element in elements:
            found[access_key(type_, element, stores=False)] = _load(type_, element)
            found[access_key(type_, element, stores=True)] = _store(type_, element)
    return found


def _names(type_: Scalar, element: Scalar) -> tuple[str, str]:
    """(letter of the memory access, predicate of ``count`` lanes)"""
    return _BITS[element.itemsize], f"vctp{8 * type_.lane.itemsize}q((uint32_t)count)"


def _load(type_: Scalar, element: Scalar) -> str:
    vector, c = vector_type(type_), STORAGE[element]
    letter, predicate = _names(type_, element)
    suffix = arm_suffix(type_)
    zero = "0.0f" if type_.is_float else "0"
    read = f"vldr{letter}q_{{}}{suffix}(from{{}})"
    if not element.is_signed:  # widening loads of unsigned elements give unsigned lanes
        unsigned = suffix.replace("s", "u")
        read = f"vreinterpretq_{suffix}_{unsigned}(vldr{letter}q_{{}}{unsigned}(from{{}}))"
    whole = read.format("", "")
    some = read.format("z_", f", {predicate}")
    lane = STORAGE[type_.lane]
    value = "from[i]" if lane == c else f"({lane})from[i]"
    return (
        f"/* {type_.lanes} lanes from count elements; the others are 0. */\n"
        f"static inline {vector} crt_{access_key(type_, element, stores=False)}"
        f"(const {c} *from, int count)\n"
        "{\n"
        f"#if {condition(type_)}\n"
        f"    return count == {type_.lanes} ? {whole}\n"
        f"        : {some};\n"
        "#else\n"
        f"    {vector} result;\n"
        f"    for (int i = 0; i < {type_.lanes}; ++i) {{\n"
        f"        result.lane[i] = (i < count) ? {value} : {zero};\n"
        "    }\n"
        "    return result;\n"
        "#endif\n"
        "}\n"
    )


def _store(type_: Scalar, element: Scalar) -> str:
    vector, c = vector_type(type_), STORAGE[element]
    letter, predicate = _names(type_, element)
    suffix, value = arm_suffix(type_), "value"
    if not element.is_signed:
        unsigned = suffix.replace("s", "u")
        suffix, value = unsigned, f"vreinterpretq_{unsigned}_{suffix}(value)"
    lane = STORAGE[type_.lane]
    return (
        f"/* The first count of {type_.lanes} lanes. */\n"
        f"static inline void crt_{access_key(type_, element, stores=True)}"
        f"({c} *to, {vector} value, int count)\n"
        "{\n"
        f"#if {condition(type_)}\n"
        f"    if (count == {type_.lanes}) {{\n"
        f"        vstr{letter}q_{suffix}(to, {value});\n"
        "    } else {\n"
        f"        vstr{letter}q_p_{suffix}(to, {value}, {predicate});\n"
        "    }\n"
        "#else\n"
        "    for (int i = 0; i < count; ++i) {\n"
        f"        to[i] = {'' if lane == c else f'({c})'}value.lane[i];\n"
        "    }\n"
        "#endif\n"
        "}\n"
    )
