"""Decodes the machine code of Cortex-M (Thumb), as far as the timing of instructions needs it."""
