"""Calls of functions that are defined elsewhere."""

from __future__ import annotations

from crtexport.errors import CrtExportError
from crtexport.ir.infer.base import Given, infers
from crtexport.ir.ops import EthosU, External
from crtexport.ir.types import TensorType


@infers(External, required=0, most=None)
def external(op: External, given: Given) -> tuple[TensorType, ...]:
    raise CrtExportError(
        f"what {op.function!r} gives for {len(given.all())} inputs is known to its module alone"
    )


@infers(EthosU, required=2, most=None)
def ethos_u(op: EthosU, given: Given) -> tuple[TensorType, ...]:
    raise CrtExportError(
        f"what commands for {op.accelerator} give for {len(given.all())} inputs is known to them"
    )
