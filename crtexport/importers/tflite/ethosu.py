"""The custom operator by which Arm's compiler Vela replaces the part of a network that an Ethos-U
runs.

Its inputs are, as kernels/ethos_u/ethosu.cc of TensorFlow Lite Micro says: a payload for Arm's
driver with the commands, constant data, the arena, a fast memory, then the network's tensors. The
commands address inputs and outputs as bytes of the arena (base address 1), whatever base addresses
the driver gets for them; their offsets in the arena are in the file's metadata
``OfflineMemoryAllocation``: the words 0, subgraph count, tensor count, then the offset of each
tensor, -1 for those that are elsewhere.

The payload is ``COP1`` and driver actions of 32-bit words (driver_actions.py of Vela, and
ethosu_driver.c of Arm's core driver): the NPU that the commands are for, and the commands.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

from crtexport.importers.tflite import schema
from crtexport.importers.tflite.flatbuffer import Vector
from crtexport.importers.tflite.operators import Decoded, SourceOperator
from crtexport.ir.graph import Tensor
from crtexport.ir.modules import Device, ExternalModule, ModuleFunction
from crtexport.ir.ops import ETHOS_U_ALIGN, EthosU
from crtexport.ir.types import DType
from crtexport.support.errors import CrtExportError

CUSTOM_NAME = "ethos-u"
FUNCTION = "TVMEthosULaunch"
"""The hook's name, the same as microTVM's, so that firmware that has it needs no other."""
_ALLOCATION = "OfflineMemoryAllocation"
_MOST = 1 << 24
_COMMANDS, _CONSTANTS, _ARENA, _FAST, _FIRST = range(5)

_MAGIC = int.from_bytes(b"COP1", "little")
_CONFIG, _STREAM, _NOP = 1, 2, 5
_PRODUCTS = {0: "u55", 1: "u65", 2: "u85"}
# Commands of one word, and of two, the second an operand; by bit 14 of the first.
_TWO_WORDS = 1 << 14
# Those that say which base address something is relative to: input, output, second input,
# weights, scales, and both ends of a copy.
_REGIONS = frozenset({0x10F, 0x11F, 0x18F, 0x128, 0x129, 0x130, 0x131})
_FAST_REGION = 2


def module(accelerators: Collection[str]) -> ExternalModule:
    """Returns the module with the driver's function; its device runs commands for ``accelerators``,
    which is one.

    Raises CrtExportError where these are several: no board has all of them.
    """
    if len(accelerators) != 1:
        raise CrtExportError(f"the operators are for {' and '.join(sorted(accelerators))}")
    device = Device("ethos-u", program=next(iter(accelerators)))
    return ExternalModule("ethos-u", "ethos-u", (), (ModuleFunction(FUNCTION, device),))


def planned_offsets(model: schema.Model, buffers: Vector[schema.Buffer]) -> tuple[int, ...]:
    """Returns the offsets of the first subgraph's tensors, -1 where one has none; empty where the
    file has no such plan."""
    for table in model.metadata:
        if table.name != _ALLOCATION:
            continue
        index = table.buffer
        if not index < len(buffers):
            raise CrtExportError(f"there is no buffer {index}", location=_ALLOCATION)
        data = buffers[index].data
        if len(data) < 12 or len(data) % 4:
            raise CrtExportError(f"{len(data)} bytes are no table", location=_ALLOCATION)
        _, _, count, *offsets = struct.unpack(f"<{len(data) // 4}i", data)
        if count != len(offsets):
            raise CrtExportError(
                f"{len(offsets)} offsets for {count} tensors", location=_ALLOCATION
            )
        return tuple(offsets)
    return ()


def ethos_u(source: SourceOperator) -> Decoded:
    """Returns the operator, with its commands, constant data and the network's tensors as inputs.
    """
    if len(source.inputs) < _FIRST or not source.outputs:
        raise CrtExportError(
            f"{len(source.inputs)} inputs and {len(source.outputs)} outputs are not those that "
            "Vela gives the operator"
        )
    commands = source.given(_COMMANDS, "commands")
    constants = source.given(_CONSTANTS, "constant data")
    nothing = constants.constant is None and not constants.type.nbytes
    arena, fast = source.given(_ARENA, "arena"), source.given(_FAST, "fast memory")
    for what, tensor in (("arena", arena), ("fast memory", fast)):
        if tensor.constant is not None or tensor.type.dtype not in (DType.UINT8, DType.INT8):
            raise CrtExportError(f"the {what} is no memory of bytes, but {tensor.type}")
    words = _words(commands)
    accelerator, stream = _payload(words)
    apart = source.inputs[_FAST] != source.inputs[_ARENA] and _FAST_REGION in _regions(stream)
    tensors = (*source.inputs[_FIRST:], *source.outputs)
    return EthosU(
        FUNCTION, arena.type.nbytes, fast.type.nbytes if apart else 0,
        tuple(_place(source, tensor, arena.type.nbytes) for tensor in tensors), accelerator,
    ), (
        source.inputs[_COMMANDS], None if nothing else source.inputs[_CONSTANTS],
        *source.inputs[_FIRST:],
    )


def _place(source: SourceOperator, tensor: int | None, arena: int) -> int:
    memory = source.inputs[_ARENA]
    if tensor is None or memory is None:
        raise CrtExportError("an input is missing")
    offset, base = source.tensors.place(tensor), source.tensors.place(memory)
    name = source.tensors.tensor(tensor).name
    if offset is None or base is None:
        raise CrtExportError(
            f"the file doesn't say where in the arena {name!r} lies",
            hint=f"Vela writes this as metadata {_ALLOCATION}; other tools must keep it",
        )
    if not 0 <= offset - base <= arena:
        raise CrtExportError(f"{name!r} lies at {offset}, outside of the arena")
    if (offset - base) % ETHOS_U_ALIGN:
        raise CrtExportError(
            f"{name!r} lies at byte {offset - base} of the arena, no multiple of {ETHOS_U_ALIGN} "
            "as Arm's driver wants it", hint="compile with Vela's --cpu-tensor-alignment 16",
        )
    return offset - base


def _words(commands: Tensor) -> tuple[int, ...]:
    constant = commands.constant
    if constant is None:
        raise CrtExportError("the commands are computed at run time")
    if constant.nbytes != commands.type.nbytes or constant.nbytes % 4 or constant.nbytes > _MOST:
        raise CrtExportError(f"{constant.nbytes} bytes are no payload for the driver")
    return struct.unpack(f"<{constant.nbytes // 4}I", constant.read())


def _payload(words: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Returns the accelerator that the commands are for, and the commands."""
    if not words or words[0] != _MAGIC:
        magic = words[0].to_bytes(4, "little") if words else b""
        raise CrtExportError(
            f"the payload begins with {magic!r}, not with b'COP1'",
            hint="let Vela write the format that Arm's core driver reads: --cop-format COP1",
        )
    accelerator, stream, at = "", None, 1
    while at < len(words):
        action, length = words[at] & 0xFF, 1
        if action == _CONFIG:
            length = 3
            config = words[at + 1] if at + 1 < len(words) else 0
            product = _PRODUCTS.get(config >> 28)
            if product is None:
                raise CrtExportError(f"the payload is for the unknown product {config >> 28}")
            accelerator = f"ethos-{product}-{1 << (config & 15)}"
        elif action == _STREAM:
            length = 1 + ((words[at] >> 8 & 0xFF) << 16 | words[at] >> 16)
            stream = words[at + 1 : at + length]
        elif action != _NOP:
            raise CrtExportError(f"the payload has the unknown driver action {action}")
        at += length
    if at != len(words) or not accelerator or stream is None:
        raise CrtExportError("the payload is truncated, or lacks the commands or what they are for")
    return accelerator, stream


def _regions(stream: tuple[int, ...]) -> frozenset[int]:
    """Returns the numbers of the base addresses that the commands use."""
    return frozenset(
        word >> 16 for word in _first_words(stream) if word & 0x3FF in _REGIONS
        and not word & _TWO_WORDS
    )


def _first_words(stream: tuple[int, ...]) -> Iterator[int]:
    at = 0
    while at < len(stream):
        yield stream[at]
        at += 2 if stream[at] & _TWO_WORDS else 1
