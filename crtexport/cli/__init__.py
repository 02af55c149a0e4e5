"""The command line over the public API. One module per command; nothing imports this."""
