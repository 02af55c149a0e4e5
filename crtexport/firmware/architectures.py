"""Rules of architectures: their triples, and the consoles, runners and counters of their start-up
code. All that depends on an architecture is a field here; nothing else knows one by its name.

An architecture without rules here is one whose start-up code is in ``templates/baremetal/``.
"""

from __future__ import annotations

from msgspec import Struct

from crtexport.support import resources
from crtexport.support.schema import ContradictionError, did_you_mean
from crtexport.support.target import X86_32

M_PROFILE = {
    "v6m": "ARMv6-M", "v7m": "ARMv7-M", "v7em": "ARMv7E-M", "v8m.base": "ARMv8-M Baseline",
    "v8m.main": "ARMv8-M Mainline", "v8.1m.main": "ARMv8.1-M Mainline",
}
"""Arm's architectures as triples call them, and as objects do."""


class Architecture(Struct, frozen=True):
    """The rules for boards of one architecture.

    ``triples`` are the first parts that a board's triple may have. It is empty if LLVM generates no
    code for the architecture, and None if a board may have any triple of LLVM's, or none.
    ``consoles`` and ``runners`` are the kinds that boards may name; ``counter`` is the kind of
    instruction counter that they may name instead of ``none``. ``hosted``: programs run under an
    operating system. ``fpu``: programs need an FPU, whatever the float ABI says.
    """

    triples: tuple[str, ...] | None = None
    consoles: tuple[str, ...] = ("semihosting", "uart16550", "none")
    runners: tuple[str, ...] = ("qemu", "none")
    counter: str = "none"
    hosted: bool = False
    fpu: bool = False


ARCHITECTURES = {
    "cortex_m": Architecture(
        tuple(f"thumb{eb}{v}" for eb in ("", "eb") for v in M_PROFILE), ("semihosting",),
        counter="systick",
    ),
    "riscv": Architecture(("riscv32", "riscv64"), ("semihosting",), counter="minstret"),
    "i386": Architecture((*X86_32, "x86_64"), ("uart16550",), counter="tsc", fpu=True),
    "host": Architecture(
        (*X86_32, "x86_64", "aarch64", "riscv64"), ("stdio",), ("native", "none"), hosted=True
    ),
    "other": Architecture((), ("none",), ("none",)),
}


def rules_of(name: str) -> Architecture:
    """Returns the rules of an architecture. Raises ContradictionError for an unknown name."""
    if name in ARCHITECTURES or has_start_up(name):
        return ARCHITECTURES.get(name, Architecture())
    raise ContradictionError(
        ("architecture",), f"there is no architecture {name!r}",
        did_you_mean(name, ARCHITECTURES) or f"there are {', '.join(ARCHITECTURES)}",
    )


def has_start_up(name: str) -> bool:
    """Returns True if there is start-up code, so that firmware can be built."""
    return (resources.templates_dir() / "baremetal" / name / "start.S").exists()


def has_llvm(name: str, triple: str) -> bool:
    """Returns True if LLVM generates code for a board with ``triple`` ("" for none) of the
    architecture ``name``. Exports for other boards are C sources."""
    triples = ARCHITECTURES.get(name, Architecture()).triples
    return bool(triple if triples is None else triples)
