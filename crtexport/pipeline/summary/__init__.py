"""The exported network as data: steps, tensors, layers with their costs, and what was changed.

Each package has it, so that a report needs the package alone.
"""
