"""Measurements of kernels, as a file that exports read: the result of tuning.

A kernel is known by the digest of its text, so a record holds for whatever network has it, and for
none whose kernel an exporter makes differently. Records belong to a configuration: target, backend,
optimization, and the versions of what makes code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, json

from crtexport.lowering.lowered_graph import LoweredGraph
from crtexport.lowering.registry import Context
from crtexport.schedules.common.candidates import Candidate
from crtexport.schedules.select.choose import Choose, digest, preferred
from crtexport.schedules.select.cost_model import Cost
from crtexport.support.errors import CrtExportError
from crtexport.support.levels import Level
from crtexport.support.outputs.single import replacing
from crtexport.support.schema import InvalidDataError, decode_json
from crtexport.support.target import Target

MOST_BYTES = 64 << 20
"""Larger files are no records of ours."""

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


Count = Annotated[int, Meta(ge=0)]


class Measured(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Of a kernel: instructions of a run, the likeliest cycles where these are modelled, bytes of
    code; ``form`` and ``layer`` are for readers."""

    instructions: Count
    code: Count
    cycles: Count | None = None
    form: str = ""
    layer: str = ""


class Configuration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the figures of kernels depend on besides their text."""

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    float_abi: str = ""
    emit: Literal["c", "llvm"]
    optimize: Level
    tools: dict[str, str]
    llvm_options: tuple[str, ...] = ()

    @staticmethod
    def of(
        target: Target, emit: Literal["c", "llvm"],
        optimize: Level, tools: Mapping[str, str],
        llvm_options: Sequence[str] = (),
    ) -> Configuration:
        return Configuration(
            triple=target.triple, cpu=target.cpu, features=target.features,
            float_abi=target.float_abi, emit=emit, optimize=optimize, tools=dict(tools),
            llvm_options=tuple(llvm_options),
        )

    def __str__(self) -> str:
        tools = ", ".join(f"{name} {version}" for name, version in sorted(self.tools.items()))
        return f"{self.cpu}, {self.emit}, {self.optimize} ({tools})"


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    configuration: Configuration
    kernels: dict[Digest, Measured] = {}


class _Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["crtexport-tuning-1"] = "crtexport-tuning-1"
    sections: tuple[_Section, ...] = ()


class Records(Struct, frozen=True):
    """All that a file holds, by configuration and digest; ``sha256`` is the file's."""

    path: Path
    sections: tuple[tuple[Configuration, Mapping[str, Measured]], ...] = ()
    sha256: str = ""

    def of(self, configuration: Configuration) -> Mapping[str, Measured]:
        """Returns the measurements of a configuration; empty if there are none."""
        return next((m for known, m in self.sections if known == configuration), {})

    def required(self, configuration: Configuration) -> Mapping[str, Measured]:
        """As :meth:`of`. Raises CrtExportError that lists what there is if nothing was measured."""
        found = self.of(configuration)
        if not found:
            known = "; ".join(str(known) for known, _ in self.sections) or "nothing"
            raise CrtExportError(
                f"nothing was measured for {configuration}", location=str(self.path),
                hint=f"it has measurements for: {known}; tune for this configuration first",
            )
        return found

    def added(self, configuration: Configuration, measurements: Mapping[str, Measured]) -> Records:
        """Returns the records with ``measurements``, which replace older ones."""
        kept = tuple(section for section in self.sections if section[0] != configuration)
        measured = {**self.of(configuration), **measurements}
        return Records(self.path, (*kept, (configuration, measured)))

    def write(self) -> None:
        """Puts the file in place, in one step, the same bytes for the same records."""
        sections = sorted(self.sections, key=lambda section: json.encode(section[0]))
        document = _Document(sections=tuple(
            _Section(configuration=known, kernels=dict(sorted(measured.items())))
            for known, measured in sections
        ))
        try:
            with replacing(self.path) as stream:
                stream.write(json.format(json.encode(document), indent=1) + b"\n")
        except OSError as error:
            raise CrtExportError(
                f"the measurements can't be written: {error.strerror}", location=str(self.path)
            ) from error


def read(path: Path) -> Records:
    """Returns the records in a file. Raises CrtExportError for one that isn't ours or can't be
    read."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise CrtExportError(
            f"the measurements can't be read: {error.strerror}", location=str(path)
        ) from error
    if len(content) > MOST_BYTES:
        raise CrtExportError("this is too large for measurements of kernels", location=str(path))
    try:
        document = decode_json(_Document, content)
    except InvalidDataError as error:
        problem = error.problems[0]
        raise CrtExportError(
            f"this isn't a file of measurements: {problem.text}",
            location=(str(path), *map(str, problem.path)),
            hint="tuning writes such files; remove it to measure anew",
        ) from error
    return Records(
        path, tuple((s.configuration, s.kernels) for s in document.sections),
        hashlib.sha256(content).hexdigest(),
    )


class ByRecord:
    """Chooses by what was measured: among the candidates that were, if the one that would be chosen
    otherwise is one of them."""

    def __init__(
        self, measured: Mapping[str, Measured], optimize: str, otherwise: Choose,
        sha256: str = "",
    ) -> None:
        """``otherwise`` chooses where too little was measured; ``sha256``: of the file."""
        self._measured, self._optimize, self._otherwise = measured, optimize, otherwise
        self.sha256 = sha256

    def __call__(
        self, context: Context, candidates: Sequence[Candidate], part: float
    ) -> Candidate:
        first = self._otherwise(context, candidates, part)
        ordered = [first, *(candidate for candidate in candidates if candidate.name != first.name)]
        known = [
            (candidate, record) for candidate in ordered
            if (record := self._measured.get(digest(candidate.make().kernel))) is not None
        ]
        if not known or known[0][0] is not first:
            return first
        timed = all(record.cycles is not None for _, record in known)
        costs = [
            Cost(record.instructions, record.code, cycles=record.cycles if timed else None)
            for _, record in known
        ]
        return known[preferred(costs, self._optimize, part)][0]

    def layers(self, lowered: LoweredGraph) -> int:
        """Returns for how many nodes of a graph, and of those in it, measurements decided: those
        that weren't have another kernel than one that was measured."""
        return sum(
            len(node.candidates) > 1 and digest(node.lowered.kernel) in self._measured
            for graph in lowered.nested() for node in graph.nodes
        )
