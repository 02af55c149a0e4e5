"""From a model's file to a package: load, simplify, lower, plan, emit, pack."""
