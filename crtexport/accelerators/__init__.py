"""A place for others: plugins that take nodes of a network and bring functions for them."""

from crtexport.accelerators.hand_over import Decision, hand_over
from crtexport.accelerators.plugin import Accelerator, Built, Constant, Match, Refusal
from crtexport.accelerators.registry import GROUP, find, names

__all__ = [
    "GROUP", "Accelerator", "Built", "Constant", "Decision", "Match", "Refusal", "find",
    "hand_over", "names",
]
