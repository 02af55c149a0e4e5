"""C of vectors: their types, loads and stores.

C sources of a board also run on other computers, for simulation: where there is no MVE, a vector is
one of gcc's and clang's, which exist for every processor.
"""

from __future__ import annotations

from crtexport.backends.c.literals import STORAGE
from crtexport.kir.language import LANE_SOURCES, Scalar

TYPES, WIDE_TYPES, WIDEST_TYPES = "vectors", "wide_vectors", "widest_vectors"
"""The keys of the types: those that MVE has, wider ones, and what takes several registers."""

_BITS = {1: "b", 2: "h", 4: "w"}
_INTEGERS = "defined(__ARM_FEATURE_MVE)"
_FLOATS = f"{_INTEGERS} && (__ARM_FEATURE_MVE & 2)"
_MVE_BYTES = 16
_REGISTER_BYTES = 32


def vector_type(type_: Scalar) -> str:
    """Returns the C name of a vector type."""
    return f"crt_{type_.value}"


def arm_suffix(type_: Scalar) -> str:
    """Returns the name of the lanes in ``arm_mve.h``: ``s8``, ``f32``."""
    return f"{'f' if type_.is_float else 's'}{8 * type_.lane.itemsize}"


def condition(type_: Scalar) -> str:
    """Returns the preprocessor's condition under which the processor has such vectors."""
    return _FLOATS if type_.is_float else _INTEGERS


def types_key(type_: Scalar) -> str:
    """Returns the key of the text that defines a vector type."""
    if type_.itemsize == _MVE_BYTES:
        return TYPES
    return WIDE_TYPES if type_.itemsize == _REGISTER_BYTES else WIDEST_TYPES


def types_text() -> dict[str, str]:
    """Returns the definitions of the types by key, on processors with and without vectors."""
    narrow = [v for v in LANE_SOURCES if types_key(v) == TYPES]
    integers = [v for v in narrow if not v.is_float]
    floats = [v for v in narrow if v.is_float]
    lines = [
        "/* Vectors; gcc and clang make do where the processor has none. */",
        "#if defined(__ARM_FEATURE_MVE)",
        "#include <arm_mve.h>",
    ]
    for type_ in integers:
        lines.append(f"typedef {type_.lane.value.replace('i', 'int')}x{type_.lanes}_t "
                     f"{vector_type(type_)};")
    lines.append("#else")
    lines += [_portable(type_) for type_ in integers]
    lines += ["#endif", f"#if {_FLOATS}"]
    lines += [f"typedef float32x{v.lanes}_t {vector_type(v)};" for v in floats]
    lines += ["#else", *(_portable(v) for v in floats), "#endif"]
    found = {TYPES: "\n".join(lines) + "\n"}
    for key in (WIDE_TYPES, WIDEST_TYPES):
        wide = [
            "/* How vectors are passed differs between processors; these never leave the file. */",
            "#if defined(__GNUC__)",
            '#pragma GCC diagnostic ignored "-Wpsabi"',
            "#endif",
            *(_portable(v) for v in LANE_SOURCES if types_key(v) == key),
        ]
        found[key] = "\n".join(wide) + "\n"
    return found


def _portable(type_: Scalar) -> str:
    size = f"__attribute__((vector_size({type_.itemsize})))"
    return f"typedef {STORAGE[type_.lane]} {vector_type(type_)} {size};"


def access_key(type_: Scalar, element: Scalar, *, stores: bool) -> str:
    """Returns the key of the function that loads or stores vectors of ``type_`` from such elements;
    also its name after ``crt_``."""
    return f"{'store' if stores else 'load'}_{type_.value}_{element.value}"


def accesses() -> dict[str, str]:
    """Returns the text of every such function by its key."""
    found = {}
    for type_, elements in LANE_SOURCES.items():
        for element in elements:
            found[access_key(type_, element, stores=False)] = _load(type_, element)
            found[access_key(type_, element, stores=True)] = _store(type_, element)
    return found


def _names(type_: Scalar, element: Scalar) -> tuple[str, str]:
    """Returns the letter of the memory access, and the predicate of ``count`` lanes."""
    return _BITS[element.itemsize], f"vctp{8 * type_.lane.itemsize}q((uint32_t)count)"


def _guarded(type_: Scalar, arm: str, portable: str) -> str:
    """Returns the body for processors with MVE and without. Vectors that MVE doesn't have need no
    condition."""
    if type_.itemsize != _MVE_BYTES:
        return portable
    return f"#if {condition(type_)}\n{arm}#else\n{portable}#endif\n"


def _narrow(type_: Scalar, element: Scalar) -> str:
    """Returns the definition of a vector of as many lanes as they are in memory, under the name
    ``crt_narrow``."""
    size = type_.lanes * element.itemsize
    return f"typedef {STORAGE[element]} crt_narrow __attribute__((vector_size({size})));"


_WIDENING = {
    (Scalar.I16X8, Scalar.I8): ("__SSE4_1__", "pmovsxbw128", 16, ""),
    (Scalar.I32X4, Scalar.I8): ("__SSE4_1__", "pmovsxbd128", 16, ""),
    (Scalar.I32X4, Scalar.I16): ("__SSE4_1__", "pmovsxwd128", 16, ""),
    (Scalar.I16X16, Scalar.I8): ("__AVX2__", "pmovsxbw256", 16, ""),
    (Scalar.I32X8, Scalar.I8): ("__AVX2__", "pmovsxbd256", 16, ""),
    (Scalar.I32X8, Scalar.I16): ("__AVX2__", "pmovsxwd256", 16, ""),
    (Scalar.I16X32, Scalar.I8): ("__AVX512BW__", "pmovsxbw512_mask", 32, ", crt_none, -1"),
    (Scalar.I32X16, Scalar.I8): ("__AVX512F__", "pmovsxbd512_mask", 16, ", crt_none, -1"),
    (Scalar.I32X16, Scalar.I16): ("__AVX512F__", "pmovsxwd512_mask", 32, ", crt_none, -1"),
}
"""By vectors and elements, where gcc widens vectors one lane after the other: the macro of a
processor that has an instruction for it, the built-in function's name, the bytes of its operand,
and further arguments."""


def _first_word(size: int, source: str, target: str, indent: str = "    ") -> str:
    """C that puts ``size`` bytes, 4 or 8, behind ``target``, with zeros behind them: as a word, not
    through memory that is read before it is written as a whole."""
    word, zeros = {4: ("int32_t", "0, 0, 0"), 8: ("int64_t", "0")}[size]
    return (
        f"{indent}typedef {word} crt_parts __attribute__((vector_size(16)));\n"
        f"{indent}{word} word;\n\n"
        f"{indent}__builtin_memcpy(&word, {source}, sizeof(word));\n"
        f"{indent}{target}(crt_parts){{word, {zeros}}};\n"
    )


def _widened(type_: Scalar, element: Scalar) -> str:
    """Returns what ends the body of a load from narrower elements: ``narrow``, widened."""
    vector = vector_type(type_)
    usual = f"    return __builtin_convertvector(narrow, {vector});\n"
    if (type_, element) not in _WIDENING:
        return usual
    needs, name, size, more = _WIDENING[type_, element]
    lanes = f"__attribute__((vector_size({size})))"
    # Operands of built-in functions have the types of C.
    letter = {1: "char", 2: "short"}[element.itemsize]
    wide = {2: "short", 4: "int"}[type_.lane.itemsize]
    none = (
        f"    typedef {wide} crt_wide __attribute__((vector_size({type_.itemsize})));\n"
        "    const crt_wide crt_none = {0};\n" if more else ""
    )
    held = type_.lanes * element.itemsize
    operand = (
        "    const crt_operand operand = (crt_operand)narrow;\n" if held == size
        else _first_word(held, "&narrow", "const crt_operand operand = (crt_operand)")
    )
    return (
        f"#if defined({needs}) && !defined(__clang__)\n"
        f"    typedef {letter} crt_operand {lanes};\n{none}{operand}\n"
        f"    return ({vector})__builtin_ia32_{name}(operand{more});\n"
        f"#else\n{usual}#endif\n"
    )


def _load(type_: Scalar, element: Scalar) -> str:
    vector, c = vector_type(type_), STORAGE[element]
    letter, predicate = _names(type_, element)
    suffix = arm_suffix(type_)
    read = f"vldr{letter}q_{{}}{suffix}(from{{}})"
    if not element.is_signed:  # widening loads of unsigned elements give unsigned lanes
        unsigned = suffix.replace("s", "u")
        read = f"vreinterpretq_{suffix}_{unsigned}(vldr{letter}q_{{}}{unsigned}(from{{}}))"
    whole = read.format("", "")
    some = read.format("z_", f", {predicate}")
    arm = f"    return count == {type_.lanes} ? {whole}\n        : {some};\n"
    same = type_.lane is element
    parts = "".join(
        f"    }} else if (count == {size}) {{\n"
        + _first_word(size, "from", "narrow = (crt_narrow)", " " * 8)
        for size in (8, 4)
    ) if type_ is Scalar.I8X16 else ""
    portable = (
        f"    {_narrow(type_, element)}\n"
        "    crt_narrow narrow = {0};\n\n"
        f"    if (count == {type_.lanes}) {{\n"
        "        __builtin_memcpy(&narrow, from, sizeof(narrow));\n"
        f"{parts}"
        "    } else {\n"
        "        for (int i = 0; i < count; ++i) {\n"
        "            narrow[i] = from[i];\n"
        "        }\n"
        "    }\n"
        + ("    return narrow;\n" if same else _widened(type_, element))
    )
    return (
        f"/* {type_.lanes} lanes from count elements; the others are 0. */\n"
        f"static inline {vector} crt_{access_key(type_, element, stores=False)}"
        f"(const {c} *from, int count)\n"
        f"{{\n{_guarded(type_, arm, portable)}}}\n"
    )


_KEEP_OLDER = """\
#if defined(__GNUC__) && !defined(__clang__)
        /* GCC (12 at least) takes the store for one of all lanes, and drops older ones to them. */
        __asm__ volatile("" : : "m"(*(const char (*)[%d])to));
#endif
"""


def _store(type_: Scalar, element: Scalar) -> str:
    vector, c = vector_type(type_), STORAGE[element]
    letter, predicate = _names(type_, element)
    suffix, value = arm_suffix(type_), "value"
    if not element.is_signed:
        unsigned = suffix.replace("s", "u")
        suffix, value = unsigned, f"vreinterpretq_{unsigned}_{suffix}(value)"
    arm = (
        f"    if (count == {type_.lanes}) {{\n"
        f"        vstr{letter}q_{suffix}(to, {value});\n"
        "    } else {\n"
        f"{_KEEP_OLDER % (type_.lanes * element.itemsize)}"
        f"        vstr{letter}q_p_{suffix}(to, {value}, {predicate});\n"
        "    }\n"
    )
    narrowed = (
        "value" if type_.lane is element else "__builtin_convertvector(value, crt_narrow)"
    )
    portable = (
        f"    {_narrow(type_, element)}\n"
        f"    const crt_narrow narrow = {narrowed};\n\n"
        f"    if (count == {type_.lanes}) {{\n"
        "        __builtin_memcpy(to, &narrow, sizeof(narrow));\n"
        "    } else {\n"
        "        for (int i = 0; i < count; ++i) {\n"
        "            to[i] = narrow[i];\n"
        "        }\n"
        "    }\n"
    )
    return (
        f"/* The first count of {type_.lanes} lanes. */\n"
        f"static inline void crt_{access_key(type_, element, stores=True)}"
        f"({c} *to, {vector} value, int count)\n"
        f"{{\n{_guarded(type_, arm, portable)}}}\n"
    )
