"""Relocatable ELF files, written without a compiler."""
