"""Hot loops of kernels as functions of instructions, in the order that takes the fewest cycles.

:mod:`.assemble` asks what the target's processor has: :mod:`.armv7em` orders the instructions of
each block of Armv7-M and its successors (list scheduling), :mod:`.mve` lets the iterations of a
loop of vectors overlap (modulo scheduling). :mod:`.frame` and :mod:`.encode` belong to both.
"""
