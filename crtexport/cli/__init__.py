"""The command line: words around the library. One module per command; nothing imports this."""
