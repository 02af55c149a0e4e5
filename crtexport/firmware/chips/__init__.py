"""Makes board files from descriptions of chips: Zephyr's devicetrees and CMSIS packs.

:mod:`.chip` has the common data type, :mod:`.pack` and :mod:`.devicetree` read the descriptions,
:mod:`.write` writes the board file.
"""
