"""The choice among a node's candidates: cost in cycles, tuning, merging."""
