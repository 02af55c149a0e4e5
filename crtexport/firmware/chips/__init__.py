"""Boards of one's own from what others describe: devicetrees of Zephyr, and CMSIS packs.

:mod:`.chip` is what they have in common, :mod:`.pack` and :mod:`.devicetree` read them,
:mod:`.write` makes the file of a board.
"""
