"""Builds the metadata of a package from its contents."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from msgspec.structs import asdict

from crtexport.artifact.contexts import called_externals, context_fields, hook, verbs
from crtexport.artifact.model import Artifact, Interface, every_call
from crtexport.backends.constants import constants_module
from crtexport.mlf import layout, metadata
from crtexport.mlf.contents import ModelContents, PackageContents
from crtexport.mlf.devices import described
from crtexport.mlf.objects import ObjectFacts
from crtexport.support.errors import CrtExportError
from crtexport.support.files import text
from crtexport.support.target import Target
from crtexport.version import __version__


def describe(
    contents: PackageContents,
    facts: Mapping[str, ObjectFacts],
    members: Mapping[str, metadata.Member],
    epoch: int,
) -> metadata.Metadata:
    """Returns the metadata of ``contents``; ``epoch`` is the export's date in seconds since 1970.
    """
    return metadata.Metadata(
        modules={
            model.artifact.module: _module(model, contents, epoch)
            for model in contents.models
        },
        crtexport=_section(contents, facts, members),
    )


def _module(model: ModelContents, contents: PackageContents, epoch: int) -> metadata.ModuleEntry:
    artifact = model.artifact
    date = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    io_size = sum(tensor.type.nbytes for tensor in (*artifact.inputs, *artifact.outputs))
    main = metadata.MainEntry(
        # Readers allocate an arena of this size; none is needed if the code has static memory.
        workspace_size_bytes=artifact.workspace_total if artifact.workspace_caller else 0,
        constants_size_bytes=artifact.constants_size,
        io_size_bytes=io_size,
        inputs=_sizes(artifact.inputs),
        outputs=_sizes(artifact.outputs),
    )
    return metadata.ModuleEntry(
        model_name=artifact.module,
        export_datetime=date.strftime("%Y-%m-%d %H:%M:%SZ"),
        memory=metadata.ModuleMemory(functions=metadata.Functions(main=(main,))),
        target=(_target_string(contents.target, contents.info["emit"]),),
        executors=("aot",),
        external_dependencies=tuple(
            {"short_name": library.name, "url": library.url, "url_type": "web",
             "version_spec": library.version}
            for library in _libraries(model)
        ),
    )


def _libraries(model: ModelContents) -> tuple[metadata.LibraryEntry, ...]:
    """Returns the libraries that the modules' sources are built with, each once."""
    libraries = dict.fromkeys(module.library for module in model.externals if module.library)
    return tuple(metadata.LibraryEntry(**asdict(library)) for library in libraries)


def _sizes(tensors: tuple[Interface, ...]) -> dict[str, metadata.TensorSize]:
    """Returns sizes by the tensors' names in the model; if these aren't unique, by their fields in
    the C interface."""
    names = [text(tensor.name) for tensor in tensors]
    unique = len(set(names)) == len(names)
    return {
        (name if unique else tensor.field): metadata.TensorSize(
            size=tensor.type.nbytes, dtype=tensor.type.dtype.value
        )
        for name, tensor in zip(names, tensors, strict=True)
    }


def _target_string(target: Target, emit: str) -> str:
    """Returns the target as TVM writes one: a kind, then options."""
    words = [emit, "-keys=cpu"]
    if emit == "llvm":
        words.append(f"-mtriple={target.triple}")
    words.append(f"-mcpu={target.cpu}")
    if emit == "llvm" and target.features:
        words.append(f"-mattr={','.join(target.features)}")
    return " ".join(words)


def _section(
    contents: PackageContents,
    facts: Mapping[str, ObjectFacts],
    members: Mapping[str, metadata.Member],
) -> metadata.CrtexportSection:
    info, target = contents.info, contents.target
    name = contents.board.get("name")
    if not isinstance(name, str) or not name:
        raise CrtExportError("the board's data has no name", location="board")
    defined = {s for fact in facts.values() for s in (*fact.defined, *fact.hidden)}
    used = {symbol for fact in facts.values() for symbol in fact.undefined} - defined
    return metadata.CrtexportSection(
        version=__version__,
        emit=info["emit"],
        system_lib=any(model.artifact.system_lib for model in contents.models),
        board=metadata.BoardEntry(name=name, file=layout.BOARD),
        abi=metadata.Abi(
            triple=target.triple, cpu=target.cpu, features=target.features,
            float_abi=target.float_abi, abi=target.abi, pointer_bits=target.pointer_bits,
            little_endian=target.little_endian, stack_align=target.stack_align,
            reloc=target.reloc, cflags=target.cflags,
        ),
        modules={
            model.artifact.module: _module_section(model, contents) for model in contents.models
        },
        objects=_objects(contents, facts),
        undefined=metadata.Undefined(
            allowed=tuple(sorted(info["undefined"])),
            used=None if contents.sources else tuple(sorted(used)),
        ),
        devices=described([model.artifact for model in contents.models], target.triple),
        tools=dict(sorted(info.get("tools", {}).items())),
        members=dict(sorted(members.items())),
    )


def _objects(
    contents: PackageContents, facts: Mapping[str, ObjectFacts]
) -> dict[str, metadata.Object]:
    modules = {f"{module.name}.o": module for module in contents.info.get("modules", ())}
    layers: dict[str, list[str]] = {}
    for model in contents.models:
        whose = f"{model.artifact.module}: " if len(contents.models) > 1 else ""
        for call in every_call(model.artifact.calls):
            layers.setdefault(call.symbol, []).append(whose + text(call.comment))
    return {
        name: metadata.Object(
            machine=fact.machine, bits=fact.bits, sections=fact.sections,
            defined=fact.defined, hidden=fact.hidden, undefined=fact.undefined,
            role=modules[name].role if name in modules else "",
            kernels=tuple(
                metadata.KernelEntry(symbol=symbol, layers=tuple(layers.get(symbol, ())))
                for symbol in (modules[name].kernels if name in modules else ())
            ),
        )
        for name, fact in sorted(facts.items())
    }


def _module_section(model: ModelContents, contents: PackageContents) -> metadata.ModuleSection:
    artifact, info = model.artifact, model.info
    return metadata.ModuleSection(
        source=info.get("source", ""),
        source_sha256=info.get("source_sha256", ""),
        numerics=info.get("numerics", ""),
        optimize=info.get("optimize", ""),
        llvm_options=info.get("llvm_options", ()),
        inputs=tuple(map(_tensor, artifact.inputs)),
        outputs=tuple(map(_tensor, artifact.outputs)),
        io="workspace" if artifact.io_in_workspace else "caller",
        feed=metadata.FeedEntry(
            artifact.inputs[artifact.feed.index].field, artifact.feed.rows,
            artifact.feed.row_bytes, artifact.feed.hop,
        ) if artifact.feed is not None else None,
        workspace=_workspace(artifact),
        state=_state(artifact),
        image_buffer=metadata.ImageBuffer(
            bytes=artifact.inflated_size, align=artifact.inflated_align
        ) if artifact.inflated_size else None,
        constants_bytes=artifact.constants_size,
        constants_object=_constants_object(contents),
        externals=_externals(model),
        devices=_devices(artifact),
        registry=tuple(
            metadata.RegisteredEntry(name=entry.name, symbol=entry.symbol)
            for entry in artifact.registry
        ),
        plan=contents.plan_file(model),
        network=contents.network_file(model),
        channels=tuple(
            metadata.ChannelsEntry(**{**layer, "layer": text(layer["layer"])})
            for layer in info.get("channels", ())
        ),
        decisions=tuple(
            metadata.DecisionEntry(**{key: text(value) for key, value in decision.items()})
            for decision in info.get("decisions", ())
        ),
        libraries=_libraries(model),
        tuning=metadata.Tuning(**info["tuning"]) if "tuning" in info else None,
    )


def _constants_object(contents: PackageContents) -> str | None:
    name = f"{constants_module(contents.models[0].artifact).name}.o"
    return name if name in contents.objects else None


def _externals(model: ModelContents) -> tuple[metadata.ExternalEntry, ...]:
    artifact = model.artifact
    fields = context_fields(artifact.devices)
    owners = {f.symbol: module for module in model.externals for f in module.functions}
    return tuple(
        metadata.ExternalEntry(
            symbol=function.symbol, module=text(owners[function.symbol].name),
            kind=owners[function.symbol].kind,
            files=tuple(path.name for path in owners[function.symbol].files),
            device=None if function.device is None else fields[function.device],
            commands=tuple(
                metadata.Commands(
                    layer=text(call.comment), commands=call.sizes[0], constants=call.sizes[1],
                    arena=call.sizes[2], fast=call.sizes[3],
                )
                for call in every_call(artifact.calls)
                if function.commands and call.symbol == function.symbol
            ),
        )
        for function in called_externals(artifact)
    )


def _devices(artifact: Artifact) -> tuple[metadata.DeviceContext, ...]:
    return tuple(
        metadata.DeviceContext(
            field=field, kind=text(device.kind), id=device.id, program=text(device.program),
            hooks=tuple(hook(device, verb) for verb in verbs(artifact, number)),
            functions=tuple(f.symbol for f in called_externals(artifact) if f.device == number),
        )
        for number, (field, device) in enumerate(
            zip(context_fields(artifact.devices), artifact.devices, strict=True)
        )
    )


def _workspace(artifact: Artifact) -> metadata.Workspace:
    return metadata.Workspace(
        bytes=artifact.workspace_size,
        align=artifact.workspace_align,
        owner="caller" if artifact.workspace_caller
        else "module" if artifact.common.workspace is None else "package",
        spilled=tuple(
            metadata.Spilled(memory=pool.memory, bytes=pool.size) for pool in artifact.spilled
        ),
    )


def _state(artifact: Artifact) -> metadata.StateEntry:
    return metadata.StateEntry(
        bytes=artifact.state_size,
        variables=tuple(
            metadata.VariableEntry(
                name=text(kept.name), dtype=kept.type.dtype.value, shape=kept.type.shape,
                offset=kept.offset,
            )
            for kept in artifact.states
        ),
    )


def _tensor(interface: Interface) -> metadata.TensorEntry:
    quant = interface.type.quant
    return metadata.TensorEntry(
        name=text(interface.name),
        field=interface.field,
        dtype=interface.type.dtype.value,
        shape=interface.type.shape,
        bytes=interface.type.nbytes,
        offset=None if interface.place is None else interface.place.offset,
        pool=0 if interface.place is None else interface.place.pool,
        quantization=None if quant is None else metadata.TensorQuantization(
            scale=quant.scale, zero_point=quant.zero_point, axis=quant.axis
        ),
    )
