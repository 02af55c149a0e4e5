"""Prints the memory of a model: its workspace, its state, the buffer for device programs."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact, WorkspaceArg, every_call, every_condition


class WorkspacePool(Struct, frozen=True):
    """A pool of the workspace: its array or pointer ``name``, its member of the struct of pools,
    the memory it is for ("" for the first), whether calls use it, whether inputs or outputs lie
    in it."""

    number: int
    name: str
    member: str
    memory: str
    used: bool
    mapped: bool

    @property
    def where(self) -> str:
        return f", in {self.memory}" if self.memory else ""


def workspace_pools(artifact: Artifact) -> list[WorkspacePool]:
    """Returns the pools of the workspace that have bytes."""
    args = [a for c in every_call(artifact.calls) for a in c.args]
    args += every_condition(artifact.calls)
    used = {a.pool for a in args if isinstance(a, WorkspaceArg)}
    mapped = {t.place.pool for t in (*artifact.inputs, *artifact.outputs) if t.place is not None}
    name = workspace_name(artifact)
    return [
        WorkspacePool(number, name + end, abi.WORKSPACE_POOL + end, end.removeprefix("_"),
             number in used, number in mapped)
        for number, end, _ in abi.workspaces(artifact)
    ]


def workspace_name(artifact: Artifact) -> str:
    """Returns the array of the workspace, or the pointer to it; names of further pools begin so."""
    shared = artifact.common.workspace
    if shared is not None:
        return f"{shared.prefix}_shared_workspace"
    return "workspace" if abi.takes_workspace(artifact) else f"{artifact.prefix}_workspace"


def state_name(artifact: Artifact) -> str:
    """Returns the array of what is kept from run to run, or the pointer to it."""
    return abi.STATE_POOL if abi.takes_state(artifact) else f"{artifact.prefix}_state"


def placeable(artifact: Artifact, stem: str, purpose: str) -> str:
    """Returns an empty macro for an attribute that users may define; ``purpose`` says why."""
    macro = f"{artifact.prefix.upper()}_{stem}_ATTR"
    return f"/* Define this to put {purpose}. */\n#ifndef {macro}\n#define {macro}\n#endif"


def memory_sections(artifact: Artifact) -> Iterator[str]:
    """Yields the definitions of all memory that the module owns, each after its macro."""
    macros = artifact.prefix.upper()
    if artifact.inflated_size and not abi.takes_buffer(artifact):
        stem = abi.IMAGE_POOL.upper()
        yield placeable(artifact, stem, "the buffer elsewhere, e.g. where a device can read it")
        yield f"""\
/* What the program of the device that is open is inflated into, if it is compressed. */
CRT_ALIGNED({macros}_{stem}_ALIGN) {macros}_{stem}_ATTR
static uint8_t {artifact.prefix}_{abi.IMAGE_POOL}[{macros}_{stem}_SIZE];"""
    if artifact.common.workspace is not None:
        yield from _shared_workspace(artifact)
    elif not abi.takes_workspace(artifact):
        yield from _own_workspace(artifact)
    if artifact.state_size and not abi.takes_state(artifact):
        yield placeable(
            artifact, "STATE", "the state elsewhere: memory that is zeroed before the first run"
        )
        yield f"""\
/* What is kept from run to run; zeros stand for the initial values. */
CRT_ALIGNED({macros}_STATE_ALIGN) {macros}_STATE_ATTR
static uint8_t {state_name(artifact)}[{macros}_STATE_SIZE];"""


def _own_workspace(artifact: Artifact) -> Iterator[str]:
    macros = artifact.prefix.upper()
    content = "Inputs, outputs and intermediate" if artifact.io_in_workspace else "Intermediate"
    for pool in workspace_pools(artifact):
        if pool.used or pool.mapped:
            stem = pool.member.upper()
            yield placeable(
                artifact, stem,
                "this part of the workspace into the memory that it is for" if pool.memory
                else 'the workspace elsewhere, e.g. as __attribute__((section(".noinit")))',
            )
            yield f"""\
/* {content} results{pool.where}. */
CRT_ALIGNED({macros}_WORKSPACE_ALIGN) {macros}_{stem}_ATTR
static uint8_t {pool.name}[{macros}_{stem}_SIZE];"""


def _shared_workspace(artifact: Artifact) -> Iterator[str]:
    """Yields the one workspace of a package: one of its models defines it, the others declare
    it."""
    shared = artifact.common.workspace
    for end, size in shared.pools if shared else ():
        array = f"uint8_t {workspace_name(artifact)}{end}[{size}];"
        where = f", in {end.removeprefix('_')}" if end else ""
        text = f"The workspace of all models of this package{where}"
        if shared is None or shared.prefix != artifact.prefix:
            yield f"/* {text}. */\nextern CRT_SHARED {array}"
            continue
        stem = (abi.WORKSPACE_POOL + end).upper()
        yield placeable(artifact, stem, 'it elsewhere, e.g. as __attribute__((section(".noinit")))')
        yield f"""\
/* {text}: what the largest needs. */
extern CRT_SHARED {array}
CRT_ALIGNED({shared.align}) {artifact.prefix.upper()}_{stem}_ATTR
{array}"""
