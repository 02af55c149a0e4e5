"""Memories in a build's devicetree, beyond the flash and RAM in Kconfig."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from crtexport.support.errors import CrtExportError, ToolMissingError

if TYPE_CHECKING:
    from devicetree import dtlib

WORKSPACE = "crtexport,workspace"
"""Property of ``/chosen``: the memory for the models' intermediate results."""

_REGION = "zephyr,memory-region"
_TIGHTLY_COUPLED = ("zephyr,dtcm", "zephyr,itcm")


class Region(Struct, frozen=True):
    """A memory of ``size`` bytes at address ``origin``. ``name`` is that of the linker's region, or
    a label; ``chosen`` are the properties of ``/chosen`` that refer to it."""

    name: str
    origin: int
    size: int
    chosen: tuple[str, ...] = ()


def read_regions(path: Path) -> tuple[Region, ...]:
    """Returns the memories of the devicetree ``path``, sorted by address.

    Raises CrtExportError if it is no devicetree, and ToolMissingError without the Python package
    that reads them.
    """
    dtlib = _dtlib()
    try:
        tree = dtlib.DT(str(path))
        roles = _chosen(tree, (dtlib.Type.PATH, dtlib.Type.STRING))
        found = [
            region for node in tree.node_iter()
            if (_REGION in node.props or node.path in roles)
            and (region := _region(node, roles.get(node.path, ())))
        ]
    except (dtlib.DTError, OSError) as error:
        raise CrtExportError(f"the devicetree can't be read: {error}",
                             location=str(path)) from error
    return tuple(sorted(found, key=lambda region: (region.origin, region.name)))


def _dtlib() -> Any:
    try:
        from devicetree import dtlib  # noqa: PLC0415  (an extra)
    except ImportError:
        raise ToolMissingError(
            "the Python package devicetree, which reads Zephyr's builds, is not installed",
            hint="pip install 'crtexport[zephyr]'",
        ) from None
    return dtlib


def _chosen(tree: dtlib.DT, paths: tuple[object, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the properties of ``/chosen`` that refer to a node, by its path. The nodes needn't be
    memories."""
    roles: dict[str, tuple[str, ...]] = {}
    if not tree.has_node("/chosen"):
        return roles
    for name, prop in tree.get_node("/chosen").props.items():
        if prop.type in paths:
            path = prop.to_path().path
            roles[path] = (*roles.get(path, ()), name)
    return roles


def _region(node: dtlib.Node, roles: tuple[str, ...]) -> Region | None:
    memory = any(role in (*_TIGHTLY_COUPLED, WORKSPACE, "zephyr,sram", "zephyr,flash")
                 for role in roles)
    if "reg" not in node.props or not (memory or _REGION in node.props):
        return None
    parent = node.parent
    address = _cells(parent, "#address-cells", 2)
    length = _cells(parent, "#size-cells", 1)
    words = node.props["reg"].to_nums() if length else []
    if len(words) < address + length:
        return None
    if _REGION in node.props:
        name = node.props[_REGION].to_string()
    else:
        name = node.labels[0] if node.labels else node.name
    return Region(name, _number(words[:address]), _number(words[address : address + length]), roles)


def _cells(node: dtlib.Node | None, name: str, default: int) -> int:
    return node.props[name].to_num() if node is not None and name in node.props else default


def _number(words: list[int]) -> int:
    value = 0
    for word in words:
        value = value << 32 | word
    return value


def read_processor(path: Path) -> tuple[str, str, str]:
    """Returns the board's model, and ``compatible`` and ``riscv,isa`` of the first processor; ""
    for properties that are missing. Raises what :func:`read_regions` raises."""
    dtlib = _dtlib()
    try:
        tree = dtlib.DT(str(path))
        cpus = tree.get_node("/cpus") if tree.has_node("/cpus") else None
        cores = [node for node in cpus.nodes.values() if "compatible" in node.props] if cpus else []
        first = cores[0].props if cores else {}
        names = first["compatible"].to_strings() if first else []
        isa = first["riscv,isa"].to_string() if "riscv,isa" in first else ""
        model = tree.root.props["model"].to_string() if "model" in tree.root.props else ""
    except (dtlib.DTError, OSError) as error:
        raise CrtExportError(f"the devicetree can't be read: {error}",
                             location=str(path)) from error
    arm = [name for name in names if name.startswith("arm,cortex-")]
    return model, (arm or [""])[0], isa
