"""What a command writes: it never takes the place of what the user has and the command reads or
doesn't know.

:mod:`.claims` refuses outputs that are inputs, :mod:`.single` writes a file whole or not at all,
:mod:`.folders` lays out many in a folder, where a manifest says which of them are ours.
"""
