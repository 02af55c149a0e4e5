"""Prints an artifact as C99 source files.

``<module>_lib0.c``: constants, kernels, workspace, ``tvmgen_<module>_run`` and its packed form.
``<module>_lib1.c``: ``tvmgen_<module>_get_c_metadata``, which TVM's AOT executor asks first.
``<module>_lib2.c``: the function registry and ``TVMSystemLibEntryPoint``, if the artifact has one.

All tables are constant and initialised by the linker; the only writable memory is the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.artifact import abi
from crtexport.artifact.contexts import (
    DECODER,
    all_hooks,
    called_externals,
    images_symbol,
    launched_symbol,
)
from crtexport.artifact.model import Artifact, Constant, Function, every_call
from crtexport.backends.c.arrays import declared, definition
from crtexport.backends.c.contexts import Contexts
from crtexport.backends.c.entry import entry_sections
from crtexport.backends.c.header import banner, declarations
from crtexport.backends.c.helpers import ALIGNED, KERNEL, SHARED, SPECIAL, Helper, select_helpers
from crtexport.backends.c.kernel import declare_kernel, print_kernel
from crtexport.backends.c.literals import STORAGE, IntBits, layer_comment, needs_special
from crtexport.backends.c.memory import memory_sections, placeable, state_name, workspace_name
from crtexport.backends.c.tables import READ_ONLY, emit_metadata, emit_registry
from crtexport.backends.constants import table_symbol
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

MAX_CONSTANTS = 16 << 20
"""Bytes of constants beyond which C text (four to seven characters a byte) stops being sensible."""

_HEADER = """\
/* {}, word for word: some builds compile sources without the folder of headers. */
{}"""
_SYSTEM_LIB = """\
/*
 * Whoever links this file from a library links the function registry's too, so that two registries
 * in one program are an error of the linker's, and never one that silently lacks models. What is
 * not called is still dropped.
 */
#if defined(__GNUC__) && defined(__ELF__)
__asm__(".globl {}");
#endif"""


def emit_c(
    artifact: Artifact, *, linked: bool = False, int_bits: IntBits = 32,
    target: Target | None = None,
) -> dict[str, str]:
    """Returns the C files of one model: base name → text, sorted by name.

    ``linked``: the constants are in an object, see :mod:`crtexport.backends.constants`.
    ``int_bits``: the width of ``int``; where that is 16, pointers are taken to be no wider.
    ``target``: the one for which loops have instructions of their own. Raises
    CrtExportError when names clash, when the artifact contradicts itself, or when it is too large
    for such pointers.
    """
    module = artifact.module
    if int_bits < 32:
        from crtexport.artifact.narrow import check_narrow  # noqa: PLC0415  (rarely wanted)

        check_narrow(artifact)
    files = {
        f"{module}_lib0.c": _emit_model(artifact, linked, int_bits, target),
        f"{module}_lib1.c": emit_metadata(artifact),
    }
    if artifact.system_lib:
        files[f"{module}_lib2.c"] = emit_registry(
            artifact.registered,
            banner(artifact, f"{module}_lib2.c: {_registry_purpose(artifact)}", READ_ONLY),
            artifact.common.system_lib,
        )
    return files


def _registry_purpose(artifact: Artifact) -> str:
    """Returns what the file with the registry is for."""
    return f"the functions of {'all modules' if artifact.common.registry else 'the module'}"


# ---- lib0: the model


def _emit_model(
    artifact: Artifact, linked: bool, int_bits: IntBits, target: Target | None
) -> str:
    """Returns ``<module>_lib0.c``: its sections with an empty line between them."""
    taken = _file_scope(artifact)
    constants = artifact.reached_constants
    table = table_symbol(artifact) if linked and constants else None
    texts = () if linked else (*constants, *artifact.image_constants)
    arrays = [_array(artifact, c) for c in texts if c.symbol not in artifact.common.borrowed]
    special = any(map(needs_special, arrays))
    helpers, kernels = _kernels(artifact, taken, int_bits, special, target)
    sections = (
        banner(artifact, f"{artifact.module}_lib0.c: constants, kernels and run function"),
        _includes(artifact, helpers),
        "#include <tvm/runtime/c_backend_api.h>",
        _HEADER.format(f"{artifact.prefix}.h", declarations(artifact)),
        *_compiler_macros(artifact),
        *dict.fromkeys(h.text for h in helpers if h.text),
        *([_constant_table(artifact, table)] if table else ()),
        *_constant_sections(artifact, arrays, texts),
        *_device_sections(artifact, linked),
        *memory_sections(artifact),
        *kernels,
        *_external_declarations(artifact),
        *entry_sections(artifact, table),
    )
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"


def _includes(artifact: Artifact, helpers: Sequence[Helper]) -> str:
    standard = ["bool", "def", "int"]
    more = {h.include for h in helpers if h.include}
    if artifact.io_in_workspace:
        more.add("#include <string.h>")
    return "\n".join([*(f"#include <std{name}.h>" for name in standard), *sorted(more)])


def _compiler_macros(artifact: Artifact) -> Iterator[str]:
    common = artifact.common
    yield from (ALIGNED, KERNEL)
    if common.lent or common.borrowed or common.workspace:
        yield SHARED
    if common.system_lib:
        yield _SYSTEM_LIB.format(common.system_lib)


def _kernels(
    artifact: Artifact, file_names: frozenset[str], int_bits: IntBits, special: bool,
    target: Target | None,
) -> tuple[tuple[Helper, ...], list[str]]:
    """Returns the kernels and the helpers that they need. Kernels that another model of the package
    defines are declared only.

    ``special``: constants are infinite or no numbers.
    """
    lent, borrowed = artifact.common.lent, artifact.common.borrowed
    assembled: dict[str, str] = {}
    kernels = [
        declare_kernel(f.kernel, f.symbol, file_names) if f.symbol in borrowed
        else print_kernel(
            f.kernel, f.symbol, file_names, shared=f.symbol in lent, int_bits=int_bits,
            target=target, assembled=assembled,
        )
        for f in _used(artifact)
    ]
    needs = {key for kernel in kernels for key in kernel.needs}
    if special:
        needs.add(SPECIAL)
    return select_helpers(needs, int_bits), [kernel.text for kernel in kernels]


def _array(artifact: Artifact, constant: Constant) -> str:
    linkage = "CRT_SHARED" if constant.symbol in artifact.common.lent else "static"
    return definition(constant, linkage, f"{artifact.prefix.upper()}_CONSTANTS_ATTR")


def _constant_sections(
    artifact: Artifact, arrays: Sequence[str], constants: Sequence[Constant]
) -> Iterator[str]:
    if arrays:
        yield placeable(
            artifact, "CONSTANTS",
            'the constants elsewhere, e.g. as __attribute__((section(".qspi")))',
        )
        yield from arrays
    borrowed = [c for c in constants if c.symbol in artifact.common.borrowed]
    if borrowed:
        yield "\n".join([
            "/* Constants that another model of this package has as well, and defines. */",
            *(f"extern CRT_SHARED {declared(constant)};" for constant in borrowed),
        ])


def _constant_table(artifact: Artifact, table: str) -> str:
    constants = artifact.reached_constants
    return (
        f"{_table_comment(constants)}\nextern const void *const {table}[{len(constants)}];"
    )


def _device_sections(artifact: Artifact, linked: bool) -> Iterator[str]:
    """Yields the device programs and their functions."""
    if linked and artifact.image_constants:
        yield "\n".join([
            "/* Programs of devices, in an object of their own. */",
            *(f"extern const uint8_t {c.symbol}[{c.count}];" for c in artifact.image_constants),
        ])
    if tables := Contexts(artifact).tables():
        comment = "/* Programs of devices and their functions: nothing has to be set up. */"
        yield "\n".join([comment, *tables])


def _external_declarations(artifact: Artifact) -> Iterator[str]:
    if externals := called_externals(artifact):
        yield "\n".join([
            "/* What others define: functions, and hooks of their devices. */",
            *Contexts(artifact).prototypes(externals),
        ])


def _used(artifact: Artifact) -> list[Function]:
    """Returns the functions that calls reach; a compiler would warn about the rest."""
    symbols = {call.symbol for call in every_call(artifact.calls)}
    return [f for f in artifact.functions if f.symbol in symbols]


def _table_comment(constants: Sequence[Constant]) -> str:
    text = "Where the constants are. They and this table are in an object of their own, because "
    lines = [f"{text}they are too many for text; they may be any distance away."]
    lines += [
        f"{index}: {STORAGE[c.dtype]} {c.symbol}[{c.count}]{', ' if c.comment else ''}{c.comment}"
        for index, c in enumerate(constants)
    ]
    return layer_comment(lines)


def _file_scope(artifact: Artifact) -> frozenset[str]:
    """Returns every name with file scope. Raises CrtExportError when one is given twice."""
    workspace = workspace_name(artifact)
    ends = [end for _, end, _ in abi.workspaces(artifact)] or [""]
    memory = (*(workspace + end for end in ends), state_name(artifact), table_symbol(artifact))
    names = [c.symbol for c in artifact.constants] + [f.symbol for f in artifact.functions]
    names += [*memory, f"{artifact.prefix}_run", abi.packed_symbol(artifact)]
    names += [f"{artifact.prefix}_reset", abi.reset_symbol(artifact)]
    names += [function.symbol for function in artifact.externals]
    names += all_hooks(artifact)
    names += ["devices", "status", "crt_first"] if artifact.externals else []
    names += [constant.symbol for constant in artifact.image_constants]
    if artifact.images:
        names += [images_symbol(artifact), launched_symbol(artifact), DECODER, "program"]
        names += [f"{artifact.prefix}_{abi.IMAGE_POOL}"]
    names += ["inputs", "outputs", "workspace_pools"]  # parameters of run, which calls kernels
    names += [symbol for symbol, _, _ in abi.io_maps(artifact)]
    for name in names:
        if names.count(name) > 1:
            raise CrtExportError(
                f"the symbol {name!r} would be defined twice", location=artifact.module
            )
    return frozenset(names)
