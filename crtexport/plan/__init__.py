"""The execution order of operators and the place of each tensor."""

from crtexport.plan.model import Placement, Plan, Space, Step
from crtexport.plan.planner import plan

__all__ = ["Placement", "Plan", "Space", "Step", "plan"]
