"""Numbers, tables and pictures about what was exported."""
