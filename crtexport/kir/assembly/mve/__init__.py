"""Loops as machine code of Armv8.1-M with MVE, whose iterations overlap.

A Cortex-M55 begins an instruction in each cycle, in the order of the program; a vector instruction
keeps its part of the processor (loads and stores, integers, products) for two. So a loop is fastest
where neighbours belong to different parts, and where an iteration's last instructions stand between
the next one's first. Compilers leave that: they see one iteration, and gcc 12 knows little of MVE.

:mod:`.selection` makes instructions of a loop in Kernel IR, :mod:`.schedule` puts them in order,
:mod:`.registers` and :mod:`.pointers` say what holds values and addresses. :mod:`.machine_loop`
does all that; :mod:`.function` makes a function of what it returns, as text and as bytes.
"""
