"""When each operator runs and where each tensor lives."""

from crtexport.plan.model import Placement, Plan, Space, Step
from crtexport.plan.planner import plan

__all__ = ["Placement", "Plan", "Space", "Step", "plan"]
