"""Plugins that take nodes of a network and bring functions for them."""

from crtexport.accelerators.partition import Decision, offload
from crtexport.accelerators.plugin import Accelerator, Built, Constant, Match, Refusal
from crtexport.accelerators.registry import GROUP, find, names

__all__ = [
    "GROUP", "Accelerator", "Built", "Constant", "Decision", "Match", "Refusal", "find",
    "names", "offload",
]
