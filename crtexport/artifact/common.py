"""Names, kernels, constants and the registry that the models of one package share."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from crtexport.artifact.abi import workspaces
from crtexport.artifact.model import Artifact, Common, SharedWorkspace
from crtexport.support.errors import CrtExportError

_ENTRIES = (
    "run", "run_packed", "get_c_metadata", "reset", "reset_packed", "map_inputs", "map_outputs",
    "workspace", "shared_workspace", "state", "constant_table", "system_lib", "device_image",
    "device_images", "device_functions", "row", "rest", "begin", "feed", "finish",
)


def entry_symbols(module: str) -> tuple[str, ...]:
    """Returns the symbols that a model of this name may define, whatever it computes."""
    return tuple(f"tvmgen_{module}_{name}" for name in _ENTRIES)


def check_names(modules: Sequence[str]) -> None:
    """Raises CrtExportError if two models of a package have the same name."""
    for position, module in enumerate(modules):
        first = modules.index(module)
        if first != position:
            raise CrtExportError(
                f"models {first + 1} and {position + 1} of the package have the same name",
                location=module, hint="give each a name of its own with --module-name, in the "
                "order of the models",
            )


def with_common(
    artifacts: Sequence[Artifact], *, one_workspace: bool = False
) -> tuple[Artifact, ...]:
    """Returns ``artifacts``, each with its shared parts: the first artifact that uses a function or
    a constant defines it, and the first one defines the registry of all and, if requested, the one
    workspace."""
    workspace = _workspace(artifacts) if one_workspace else None
    owners: dict[str, int] = {}
    users: dict[str, set[int]] = {}
    for number, artifact in enumerate(artifacts):
        for symbol in _symbols(artifact):
            owners.setdefault(symbol, number)
            users.setdefault(symbol, set()).add(number)
    for number, artifact in enumerate(artifacts):
        _check_externals(artifact, number, artifacts, owners)
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
                workspace=workspace,
                system_lib=(
                    f"{artifacts[0].prefix}_system_lib" if artifacts[0].system_lib else ""
                ),
            ),
        )
        for number, artifact in enumerate(artifacts)
    )


def _workspace(artifacts: Sequence[Artifact]) -> SharedWorkspace:
    """Returns the smallest workspace that is large enough for each of ``artifacts``."""
    sizes: dict[str, int] = {}
    for artifact in artifacts:
        for _, end, size in workspaces(artifact):
            sizes[end] = max(size, sizes.get(end, 0))
    return SharedWorkspace(
        artifacts[0].prefix, tuple(sizes.items()), max(a.workspace_align for a in artifacts)
    )


def package_workspaces(artifacts: Sequence[Artifact]) -> dict[str, int]:
    """Returns the bytes of all workspaces that the models own, by the suffix of their names: "" in
    the first memory, "_<memory>" in another."""
    owning = [artifact for artifact in artifacts if not artifact.workspace_caller]
    if owning and owning[0].common.workspace is not None:
        return dict(owning[0].common.workspace.pools)
    sizes: dict[str, int] = {}
    for artifact in owning:
        for _, end, size in workspaces(artifact):
            sizes[end] = sizes.get(end, 0) + size
    return sizes


def _check_externals(
    artifact: Artifact, number: int, artifacts: Sequence[Artifact], owners: dict[str, int]
) -> None:
    """Raises CrtExportError for an external function whose name another model uses."""
    taken = {s: n for n, other in enumerate(artifacts) for s in entry_symbols(other.module)}
    for function in artifact.externals:
        whose = owners.get(function.symbol, taken.get(function.symbol, number))
        if whose != number:
            raise CrtExportError(
                f"the model {artifacts[whose].module!r} has a function of this name",
                location=(artifact.module, function.symbol), hint="rename the module's function",
            )


def package_constants(artifacts: Sequence[Artifact]) -> int:
    """Returns the bytes of the constants of all ``artifacts``, shared ones counted once."""
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
