"""Prints an artifact as LLVM modules, one for each object of the package.

``lib0`` holds kernels, the workspace and the two ways to run the model; ``lib1`` the metadata that
TVM's executors ask for; ``lib2`` the function registry; from ``lib3`` on kernels, if they are split
off. No table needs anything to happen before the first call. Constants are declared only:
:mod:`crtexport.backends.constants` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crtexport.artifact import abi
from crtexport.artifact.model import (
    Artifact,
    Constant,
    Function,
)
from crtexport.backends.constants import stored_chunks
from crtexport.backends.llvm.calling import Callings
from crtexport.backends.llvm.contexts import context_parameters
from crtexport.backends.llvm.devices import print_device_tables
from crtexport.backends.llvm.entry import (
    main_arity,
    main_symbol,
    print_packed,
    print_packed_reset,
    print_reset,
    print_run,
    shared_workspace_symbol,
    state_symbol,
    workspace_symbol,
)
from crtexport.backends.llvm.feed import print_feed
from crtexport.backends.llvm.kernel import Linkage, declare_kernel, print_kernel
from crtexport.backends.llvm.maps import print_maps
from crtexport.backends.llvm.split import partition
from crtexport.backends.llvm.statements import StatementPrinter, internal_function
from crtexport.backends.llvm.tables import print_metadata, print_registry
from crtexport.backends.llvm.types import (
    ModuleText,
    bytes_literal,
    comment,
)
from crtexport.backends.modules import SPLITS, Module, Split
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

_FIRST_OF_KERNELS = 3  # also where there is no registry
_SMALL = 256
"""Bytes of a constant whose values code may use without loading them."""


def emit_llvm(artifact: Artifact, target: Target, optimize: str) -> dict[str, str]:
    """Returns file names (``<module>_lib0.ll`` …) and texts of the modules, in the order of the
    package.

    Nothing is split; errors as of :func:`llvm_modules`.
    """
    return {f"{m.name}.ll": text for m, text in llvm_modules(artifact, target, optimize).items()}


def llvm_modules(
    artifact: Artifact, target: Target, optimize: str, split: Split = "none"
) -> dict[Module, str]:
    """Returns the LLVM modules of ``artifact`` and their texts, in the order of the package.

    ``optimize`` is one of ``LEVELS``; ``split`` selects the kernels that get modules of their
    own (:func:`.split.partition`). Raises CrtExportError for an unknown choice of either, and
    for a kernel or a registry name that can't be printed.
    """
    return dict(printed_modules(artifact, target, optimize, split))


def printed_modules(
    artifact: Artifact, target: Target, optimize: str, split: Split = "none"
) -> Iterator[tuple[Module, str]]:
    """Yields the results of :func:`llvm_modules`, each as soon as it is printed."""
    if split not in SPLITS:
        raise CrtExportError(
            f"there is no way to split modules called {split}",
            hint=f"choose one of {', '.join(SPLITS)}",
        )

    def fresh() -> ModuleText:
        return ModuleText(target, optimize)

    callings = Callings(artifact)
    staying, *leaving = partition(artifact, split, callings.alone, target)
    name = artifact.module
    yield (
        Module(f"{name}_lib0", "model", _symbols(staying)),
        _code(artifact, fresh(), f"{name}_lib0.ll", staying, callings),
    )
    yield (
        Module(f"{name}_lib1", "metadata"), print_metadata(artifact, fresh(), f"{name}_lib1.ll")
    )
    if artifact.system_lib:
        yield (
            Module(f"{name}_lib2", "registry"),
            print_registry(artifact, fresh(), f"{name}_lib2.ll"),
        )
    for number, group in enumerate(leaving, _FIRST_OF_KERNELS):
        own = Module(f"{name}_lib{number}", "kernels", _symbols(group))
        yield own, _kernels(artifact, fresh(), f"{own.name}.ll", group, callings)


def _symbols(functions: Sequence[Function]) -> tuple[str, ...]:
    return tuple(function.symbol for function in functions)


def _code(
    artifact: Artifact, module: ModuleText, name: str, staying: Sequence[Function],
    callings: Callings,
) -> str:
    body = _named_registry(artifact)
    body += [_constant(c, module.target) for c in artifact.reached_constants]
    if not artifact.workspace_caller:
        body += _memory(artifact)
    if artifact.images:
        body += print_device_tables(artifact, module)
    body.append("")
    for function in artifact.functions:
        symbol, kernel, own = function.symbol, function.kernel, callings.of(function.symbol)
        if function in staying:
            linkage: Linkage = "hidden" if symbol in artifact.common.lent else "internal"
            body.append(print_kernel(symbol, kernel, module, linkage, own))
        else:
            module.declare(declare_kernel(symbol, kernel, module, own))
    if artifact.feed is not None:
        body += print_feed(artifact, artifact.feed, module, callings)
    else:
        body.append(_main(artifact, module, callings))
    body.append(print_run(artifact))
    body.append(print_packed(artifact, module))
    body += print_maps(artifact, module)
    if artifact.state_size:
        body += [print_reset(artifact, module), print_packed_reset(artifact, module)]
    return module.text(name, artifact.header_comment, body)


def _named_registry(artifact: Artifact) -> list[str]:
    """Returns a reference that makes linkers take the object with the function registry wherever
    they take this one, so that they report two registries in one program: its name, in a section
    that they read and leave out."""
    system_lib = artifact.common.system_lib
    if not system_lib:
        return []
    own = f"{artifact.prefix}.registry_needed"
    return [
        f"@{system_lib} = external hidden constant {{ ptr }}",
        f'@{own} = internal constant ptr @{system_lib}, section ".crt_registry", !exclude !{{}}',
        f'@llvm.compiler.used = appending global [1 x ptr] [ptr @{own}], section "llvm.metadata"',
    ]


def _memory(artifact: Artifact) -> list[str]:
    """Returns the workspace and state that the model owns."""
    shared = artifact.common.workspace
    own = [(state_symbol(artifact), artifact.state_size)]
    if shared is None:
        own[:0] = [
            (workspace_symbol(artifact, number), size)
            for number, _, size in abi.workspaces(artifact)
        ]
    lines = [
        f"@{symbol} = internal global [{size} x i8] zeroinitializer, "
        f'section ".bss.{symbol}", align {artifact.workspace_align}'
        for symbol, size in own if size
    ]
    if shared is None:
        return lines
    for end, size in shared.pools:
        symbol = shared_workspace_symbol(shared, end)
        here = shared.prefix == artifact.prefix
        lines.append(
            f"@{symbol} = {'' if here else 'external '}hidden global [{size} x i8]"
            + (f' zeroinitializer, section ".bss.{symbol}"' if here else "")
            + f", align {shared.align}"
        )
    return lines


def _kernels(
    artifact: Artifact, module: ModuleText, name: str, functions: Sequence[Function],
    callings: Callings,
) -> str:
    """Returns a module of kernels only; the linker keeps them out of a library's interface."""
    reached = callings.constants(f.symbol for f in functions)
    body = [_constant(c, module.target) for c in artifact.constants if c.symbol in reached]
    body += [
        print_kernel(f.symbol, f.kernel, module, "hidden", callings.of(f.symbol)) for f in functions
    ]
    return module.text(name, artifact.header_comment, body)


def _constant(constant: Constant, target: Target) -> str:
    """Returns the declaration of a constant, which is in an object of its own.

    LLVM sees the values of small ones, which may end as immediates in the code. On x86-64 their
    addresses come from the table that linkers make, so that constants may be any distance away;
    linkers take that detour out again where they are near.
    """
    hidden = "" if target.triple.startswith("x86_64-") else "hidden "
    size = constant.count * constant.dtype.itemsize
    linkage, value = "external", ""
    if size <= _SMALL:
        linkage = "available_externally"
        value = " " + bytes_literal(b"".join(stored_chunks(constant, target.little_endian)))
    lines = [comment(constant.comment)] if constant.comment else []
    lines.append(
        f"@{constant.symbol} = {linkage} {hidden}constant [{size} x i8]{value}, "
        f"align {constant.align}"
    )
    return "\n".join(lines)


def _main(artifact: Artifact, module: ModuleText, callings: Callings) -> str:
    """Returns the internal function that calls every kernel; its parameters are checked
    pointers."""
    printer = StatementPrinter(artifact, module, callings)
    printer.statements(artifact.calls)
    names = [f"%a{i}" for i in range(main_arity(artifact))]
    names += context_parameters(artifact)
    return internal_function(main_symbol(artifact), names, printer)
