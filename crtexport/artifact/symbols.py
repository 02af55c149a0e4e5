"""Turns a model's names into identifiers that C and C++ accept.

Struct fields. As microTVM does, every character of a tensor name that is neither an ASCII letter
nor a digit becomes ``_`` and case is kept (``serving_default_input:0`` is the field
``serving_default_input_0``, ``Identity`` stays ``Identity``), so that firmware that fills
``inputs.serving_default_input_0`` builds unchanged. Where that would not be an identifier that is
safe in every C and C++ file, it is changed: a leading digit or underscore gets ``t_`` in front, a
keyword gets ``_`` behind, a name all in capitals (which is how macros are spelled) is lower-cased,
a name without any usable character is called ``input0`` or ``output1`` by kind and position.

Macros. They carry the field in capitals, ``TVMGEN_<M>_<FIELD>_SIZE``, as microTVM's do. Only where
that stem is ambiguous, because an input and an output share it or because it is one of the model's
own (an input called ``workspace``), the stem carries the kind: ``TVMGEN_<M>_INPUT_<FIELD>_SIZE``.

Names that clash all the same are refused with both names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from crtexport.artifact.abi import MAX_NAME
from crtexport.support.errors import CrtExportError

MAX_MODULE = MAX_NAME - len("tvmgen__get_c_metadata")
"""Longest module name whose registered functions the C runtime can look up."""

MAX_TENSOR_NAME = 4095
"""Longest string, in bytes, that every C99 compiler takes (ISO C99, 5.2.4.1); the metadata contains
tensors' names."""

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while
alignas alignof bool constexpr false nullptr static_assert thread_local true typeof typeof_unqual
and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl
concept const_cast consteval constinit decltype delete dynamic_cast explicit export friend import
module mutable namespace new noexcept not not_eq operator or or_eq private protected public
reinterpret_cast requires static_cast template this throw try typeid typename using virtual wchar_t
xor xor_eq
"""
# Macros and file-scope names that common compilers and headers define in lower case.
_TAKEN = """
arm assert complex errno fortran i386 imaginary linux main mips noreturn offsetof riscv signgam
stderr stdin stdout unix va_arg va_end va_list va_start
int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t ptrdiff_t
size_t memcpy memset memmove memcmp
"""
RESERVED = frozenset(_KEYWORDS.split()) | frozenset(_TAKEN.split())
"""Words that no generated identifier may be: keywords of C99 to C23 and C++, and common macros."""

MODEL_MACROS = frozenset({
    "WORKSPACE_SIZE", "WORKSPACE_ALIGN", "WORKSPACE_ATTR", "WORKSPACE_WORKSPACE_POOL_SIZE",
    "STATE_SIZE", "STATE_ALIGN", "STATE_ATTR", "STATE_WORKSPACE_POOL_SIZE",
    "CONSTANTS_SIZE", "CONSTANTS_ATTR", "OK", "ERROR_NULL", "ERROR_ARGUMENTS",
})
"""Macros of the model as a whole, after ``TVMGEN_<M>_``."""
TENSOR_MACROS = (
    "SIZE", "ELEMENTS", "DTYPE", "DTYPE_CODE", "DTYPE_BITS", "NDIM", "SHAPE", "SCALE", "ZERO_POINT"
)
"""Properties of a tensor that macros define, after ``TVMGEN_<M>_<stem>_``."""


def sanitize_module(name: str) -> str:
    """Returns ``name`` as the ``<module>`` of ``tvmgen_<module>_*``: lower case, ``[a-z0-9_]+``.

    Raises CrtExportError when nothing usable is left or when the result is too long for the C
    runtime's name buffers.
    """
    module = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    hint = "give a name of letters, digits and underscores with --module-name"
    if not module:
        raise CrtExportError("no module name can be made of this text", location=name, hint=hint)
    if len(module) > MAX_MODULE:
        raise CrtExportError(
            f"the module name has {len(module)} characters, at most {MAX_MODULE} are possible",
            location=name,
            hint=hint,
        )
    return module


def _safe(text: str) -> str:
    """Returns ``text``, of ``[A-Za-z0-9_]``, changed where C or C++ reserve it."""
    if text[0] == "_" or text[0].isdigit():
        text = "t_" + text.lstrip("_")
    return text + "_" if text in RESERVED else text


def c_identifier(text: str) -> str:
    """Returns a lower-case identifier ``[a-z][a-z0-9_]*`` that reads like ``text``.

    Never empty, never a keyword of C or C++, without ``__``.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return _safe(plain) if plain else "unnamed"


def _field(name: str, kind: str, position: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9]", "_", name)
    if not plain.strip("_"):
        return f"{kind}{position}"
    return _safe(plain.lower() if plain.upper() == plain else plain)


def interface_fields(names: Sequence[str], kind: str) -> tuple[str, ...]:
    """Returns struct fields for the tensors ``names``; ``kind`` is ``"input"`` or ``"output"``.

    Raises CrtExportError, naming both, when two names become the same field or differ only in case
    (their macros would be the same), and for a name that is too long for C.
    """
    fields: dict[str, tuple[str, str]] = {}
    for position, name in enumerate(names):
        if (size := len(name.encode())) > MAX_TENSOR_NAME:
            raise CrtExportError(
                f"the name of this {kind} has {size} bytes, C allows for {MAX_TENSOR_NAME}",
                location=f"{name[:40]}...", hint=f"rename the {kind} in the model",
            )
        field = _field(name, kind, position)
        other, _ = fields.setdefault(field.upper(), (name, field))
        if len(fields) == position:
            raise CrtExportError(
                f"{kind}s {other!r} and {name!r} would both be called {field!r} in C",
                location=name,
                hint=f"rename one of the {kind}s in the model",
            )
    return tuple(field for _, field in fields.values())


def macro_stems(
    inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns ``<stem>`` of ``TVMGEN_<M>_<stem>_SIZE`` for the fields of all inputs and of all
    outputs.

    Raises CrtExportError when two tensors would still share a macro.
    """
    fields = (*inputs, *outputs)
    uses = Counter(field.upper() for field in fields)

    def stem(field: str, kind: str) -> str:
        upper = field.upper()
        ambiguous = uses[upper] > 1 or any(f"{upper}_{m}" in MODEL_MACROS for m in TENSOR_MACROS)
        return f"{kind}_{upper}" if ambiguous else upper

    stems = [stem(f, "INPUT") for f in inputs] + [stem(f, "OUTPUT") for f in outputs]
    owners: dict[str, int] = {}
    for position, own in enumerate(stems):
        for macro in TENSOR_MACROS:
            other = owners.setdefault(f"{own}_{macro}", position)
            if other != position:
                both = f"{fields[other]!r} and {fields[position]!r}"
                raise CrtExportError(
                    f"{both} would share the macro {own}_{macro}",
                    location=fields[position],
                    hint="rename one of them in the model",
                )
    return tuple(stems[: len(inputs)]), tuple(stems[len(inputs) :])


class Namer:
    """Returns file-local symbols, each once: ``conv2d``, ``conv2d_2``, …"""

    def __init__(self, used_symbols: Iterable[str] = ()) -> None:
        self._used = set(used_symbols)

    def name(self, text: str) -> str:
        """Returns an identifier that reads like ``text`` and was not returned before."""
        base = c_identifier(text)
        candidate, count = base, 1
        while candidate in self._used:
            count += 1
            candidate = f"{base}_{count}"
        self._used.add(candidate)
        return candidate


_ASSEMBLED = "_asm_"


def assembled_symbol(kernel: str, loop: str) -> str:
    """Returns the symbol of a function that consists of instructions, for a loop in the kernel
    ``kernel``."""
    return f"{kernel}{_ASSEMBLED}{loop}"


def with_loops(sizes: Mapping[str, int]) -> dict[str, int]:
    """Returns the bytes of functions by symbol; kernels have those of their loops that are
    functions of their own, too."""
    found = dict(sizes)
    for symbol, size in sizes.items():
        kernel, separator, _ = symbol.partition(_ASSEMBLED)
        if separator and kernel in found:
            found[kernel] += size
    return found
