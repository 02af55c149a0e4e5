"""What the models of one package have in common: names, kernels, constants, one registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crtexport.artifact.model import Artifact, Common
from crtexport.errors import CrtExportError

_ENTRIES = (
    "run", "run_packed", "get_c_metadata", "reset", "reset_packed", "map_inputs", "map_outputs",
    "workspace", "state", "constant_table", "device_image", "device_images", "device_functions",
)


def entry_symbols(module: str) -> tuple[str, ...]:
    """The symbols that a model of this name may have whatever it computes."""
    return tuple(f"tvmgen_{module}_{name}" for name in _ENTRIES)


def check_names(modules: Sequence[str]) -> None:
    """Raises CrtExportError when two models of a package have one name."""
    for position, module in enumerate(modules):
        first = modules.index(module)
        if first != position:
            raise CrtExportError(
                f"models {first + 1} and {position + 1} of the package have the same name",
                location=module, hint="give each a name of its own with --module-name, in the "
                "order of the models",
            )


def with_common(artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """``artifacts``, each told what it shares: the first that uses a function or a constant
    defines it, and the first has the registry of all."""
    owners: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    for number, artifact in enumerate(artifacts):
        for symbol in _symbols(artifact):
            owners.setdefault(symbol, number)
            users.setdefault(symbol, set()).add(number)
    return tuple(
        replace(
            artifact,
            system_lib=artifact.system_lib and number == 0,
            common=Common(
                lent=frozenset(
                    s for s in _symbols(artifact) if owners[s] == number and len(users[s]) > 1
                ),
                borrowed=frozenset(s for s in _symbols(artifact) if owners[s] != number),
                registry=() if number else tuple(
                    entry for other in artifacts[1:] for entry in other.registry
                ),
            ),
        )
        for number, artifact in enumerate(artifacts)
    )


def package_constants(artifacts: Sequence[Artifact]) -> int:
    """Bytes of the constants of all ``artifacts``, those that they share once."""
    sizes = {
        c.symbol: c.data.nbytes
        for artifact in artifacts for c in (*artifact.constants, *artifact.image_constants)
    }
    return sum(sizes.values())


def _symbols(artifact: Artifact) -> tuple[str, ...]:
    return (
        *(function.symbol for function in artifact.functions),
        *(constant.symbol for constant in artifact.constants),
    )
