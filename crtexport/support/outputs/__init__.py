"""Writing of outputs that never replaces files that the user owns or the command reads.

:mod:`.claims` refuses outputs that are inputs, :mod:`.single` writes a file whole or not at all,
:mod:`.folders` lays out many in a folder, where a manifest says which of them are ours;
:mod:`.signals` holds Ctrl-C and SIGTERM back meanwhile.
"""
