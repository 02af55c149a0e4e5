"""The contents of a package, and the checks before it is written."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from msgspec import Struct, field

from crtexport.artifact.byte_sources import Blob
from crtexport.artifact.model import Artifact
from crtexport.backends.modules import Module
from crtexport.ir.graph import Graph, Node
from crtexport.ir.modules import ExternalModule
from crtexport.mlf import layout
from crtexport.mlf.devices import containers
from crtexport.mlf.metadata import json_bytes, short_json_bytes
from crtexport.mlf.objects import ObjectFacts, object_facts
from crtexport.plan.model import Plan, Space, Step
from crtexport.support.errors import CrtExportError
from crtexport.support.target import Target

EMPTY_PARAMETERS = struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 0, 0)
"""A dictionary of parameters without entries: all constants are linked with the code."""

_STAND_IN = """\
/*
 * {name}: the code of this package is in objects.
 * Build systems that gather sources and objects into a library ask a source for its language.
 */
typedef int tvmgen_{module}_objects;
"""

_GRAPH_FIRST_LINE = "# The network as crtexport understood it; this isn't Relay text.\n"


class PackageInfo(TypedDict):
    """Facts about the export that only its caller knows.

    ``undefined`` lists every symbol that the code may leave to the firmware. ``modules`` are the
    models that the objects belong to; ``tools`` maps the tools that made the code to their
    versions.
    """

    emit: Literal["c", "llvm"]
    undefined: tuple[str, ...]
    modules: NotRequired[tuple[Module, ...]]
    tools: NotRequired[Mapping[str, str]]


class ModelInfo(TypedDict, total=False):
    """Facts about one of the models. ``plan`` is :func:`plan_data`, ``network`` what reports show;
    ``channels`` has the fields of metadata's LayerChannels, ``decisions`` those of its Decision,
    ``tuning`` those of Tuning."""

    optimize: str
    llvm_options: tuple[str, ...]
    numerics: str
    source: str
    source_sha256: str
    plan: Mapping[str, Any]
    network: Mapping[str, Any]
    channels: tuple[dict[str, Any], ...]
    decisions: tuple[dict[str, Any], ...]
    tuning: Mapping[str, Any]


class ModelContents(Struct, frozen=True):
    """One exported model; ``header`` is the text of ``tvmgen_<module>.h``."""

    artifact: Artifact
    header: str
    graph_text: str
    info: ModelInfo = field(default_factory=ModelInfo)
    externals: tuple[ExternalModule, ...] = ()


class PackageContents(Struct, frozen=True):
    """One or several exported models.

    ``sources`` and ``objects`` map basenames (``default_lib0.c``, ``default_lib1.o``) to contents;
    ``runtime_headers`` maps paths relative to ``runtime/include`` to bytes; ``board`` is the
    resolved board as JSON data with its ``name``. ``facts`` are those of objects that were examined
    before. ``device_bundle``: add a compressed bundle of device programs.
    """

    models: tuple[ModelContents, ...]
    target: Target
    board: Mapping[str, Any]
    info: PackageInfo
    sources: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, Blob] = field(default_factory=dict)
    runtime_headers: Mapping[str, bytes] = field(default_factory=dict)
    facts: Mapping[str, ObjectFacts] = field(default_factory=dict)
    device_bundle: bool = False

    def plan_file(self, model: ModelContents) -> str | None:
        """Returns the path of the memory plan of ``model`` in the package, None without one."""
        return self._file(model, layout.PLAN) if "plan" in model.info else None

    def network_file(self, model: ModelContents) -> str | None:
        """Returns the path of the summary of the network of ``model``, None without one."""
        return self._file(model, layout.NETWORK) if "network" in model.info else None

    def _file(self, model: ModelContents, name: str) -> str:
        return layout.of_model(model.artifact.module, name, only_model=len(self.models) == 1)


def plan_data(graph: Graph, plan: Plan) -> dict[str, Any]:
    """Returns the memory plan as JSON data: the place of every planned tensor, and the order of
    nodes."""
    placed = [
        {
            "id": index,
            "tensor": graph.tensors[index].name,
            "type": str(graph.tensors[index].type),
            "bytes": graph.tensors[index].type.nbytes,
            "space": home.space.value,
            "index": home.index,
            "offset": home.offset,
        }
        for index, home in enumerate(plan.placements)
        if home is not None and home.space is not Space.CONSTANT
    ]
    steps = [_step_data(graph.nodes[step.node], step) for step in plan.steps]
    return {
        "workspace_bytes": plan.workspace_size,
        **({"spilled_bytes": list(plan.spilled)} if plan.spilled else {}),
        "state_bytes": plan.state_size,
        "alignment": plan.alignment,
        "tensors": placed,
        "steps": steps,
    }


def _step_data(node: Node, step: Step) -> dict[str, Any]:
    """Returns a step as JSON data. If its node runs other graphs, their plans are part of its
    scratch: ``workspace`` and ``outputs`` are offsets there (null: an output of the node itself).
    The rows that a cascade of ``parts`` keeps of tensors are there, too."""
    data: dict[str, Any] = {
        "node": str(node),
        "in_place": [list(pair) for pair in step.in_place],
        "scratch": None if step.scratch is None else {
            **({"index": step.scratch.pool} if step.scratch.pool else {}),
            "offset": step.scratch.offset, "bytes": step.scratch.nbytes,
        },
    }
    if step.rows is not None:
        data["rows"] = {
            "parts": [str(part) for part in node.parts],
            "kept": [
                {"tensor": tensor, "offset": offset, "rows": step.rows.rows[tensor]}
                for tensor, offset in step.rows.rings.items()
            ],
        }
    if step.inner:
        data["graphs"] = [
            {
                "workspace": inner.workspace,
                "outputs": list(inner.outputs),
                "plan": plan_data(graph, inner.plan),
            }
            for inner, graph in zip(step.inner, node.graphs, strict=True)
        ]
    return data


def check(contents: PackageContents) -> dict[str, ObjectFacts]:
    """Checks that firmware can use the contents; returns the facts of the objects by name.

    Raises CrtExportError for bad or clashing file names, for a symbol that two objects define and,
    if there are only objects, for an undefined symbol that isn't in ``info["undefined"]``.
    """
    for model in contents.models:
        layout.check_module(model.artifact.module)
    _check_basenames(contents)
    facts = {
        name: contents.facts.get(name) or object_facts(name, contents.objects[name])
        for name in sorted(contents.objects)
    }
    owner: dict[str, str] = {}
    for name, fact in facts.items():
        for symbol in (*fact.defined, *fact.hidden):
            if symbol in owner:
                raise CrtExportError(
                    f"{owner[symbol]} defines the same symbol", location=(name, symbol)
                )
            owner[symbol] = name
    allowed = {*contents.info["undefined"], *owner}
    for name, fact in facts.items():
        missing = sorted(set(fact.undefined) - allowed)
        if missing and not contents.sources:
            raise CrtExportError(
                f"the object needs symbols that nothing provides: {', '.join(missing)}",
                location=name,
            )
    return facts


def _check_basenames(contents: PackageContents) -> None:
    used_names: dict[str, str] = {}
    stems: dict[str, str] = {}
    reserved = {layout.stand_in(model.artifact.module) for model in contents.models}
    for name in (*contents.sources, *contents.objects):
        layout.check_relative(name)
        suffixes = layout.SOURCE_SUFFIXES if name in contents.sources else (layout.OBJECT_SUFFIX,)
        stem, dot, suffix = name.rpartition(".")
        if "/" in name or dot + suffix not in suffixes:
            raise CrtExportError(
                f"a file of generated code is named *{' or *'.join(suffixes)}, without a folder",
                location=name,
            )
        if name in reserved:
            raise CrtExportError(
                "a package of objects has a file of this name", location=name,
                hint="rename the file",
            )
        if name.lower() in used_names or stem.lower() in stems:
            other = used_names.get(name.lower()) or stems[stem.lower()]
            raise CrtExportError(
                f"the name clashes with {other}", location=name,
                hint="build systems flatten folders and compile sources to objects of their name",
            )
        used_names[name.lower()] = stems[stem.lower()] = name


def member_files(contents: PackageContents) -> dict[str, Blob]:
    """Returns every file of the package but the metadata, by path."""
    files: dict[str, Blob] = {layout.BOARD: json_bytes(dict(contents.board))}
    for model in contents.models:
        module = model.artifact.module
        graph_text = _GRAPH_FIRST_LINE + model.graph_text
        files[layout.header(module)] = model.header.encode("utf-8")
        files[layout.parameters(module)] = EMPTY_PARAMETERS
        files[layout.graph(module)] = graph_text.encode("utf-8", "backslashreplace")
        plan = contents.plan_file(model)
        if plan is not None:
            files[plan] = json_bytes(dict(model.info["plan"]))
        network = contents.network_file(model)
        if network is not None:
            files[network] = short_json_bytes(dict(model.info["network"]))
    for name, text in contents.sources.items():
        files[layout.source(name)] = text.encode("utf-8")
    if not contents.sources:
        module = contents.models[0].artifact.module
        name = layout.stand_in(module)
        files[layout.source(name)] = _STAND_IN.format(name=name, module=module).encode("utf-8")
    for name, blob in contents.objects.items():
        files[layout.library(name)] = blob
    for name, content in contents.runtime_headers.items():
        layout.check_relative(name)
        files[layout.runtime_header(name)] = content
    return files | containers(
        [model.artifact for model in contents.models], contents.target.triple,
        bundled=contents.device_bundle,
    )
