"""Calls of functions that are defined elsewhere."""

from __future__ import annotations

from crtexport.ir.infer.base import InputTypes, infers
from crtexport.ir.ops import EthosU, External
from crtexport.ir.types import TensorType
from crtexport.support.errors import CrtExportError


@infers(External, required=0, most=None)
def external(op: External, inputs: InputTypes) -> tuple[TensorType, ...]:
    raise CrtExportError(
        f"what {op.function!r} gives for {len(inputs.all())} inputs is known to its module alone"
    )


@infers(EthosU, required=2, most=None)
def ethos_u(op: EthosU, inputs: InputTypes) -> tuple[TensorType, ...]:
    raise CrtExportError(
        f"what commands for {op.accelerator} give for {len(inputs.all())} inputs is known to them"
    )
