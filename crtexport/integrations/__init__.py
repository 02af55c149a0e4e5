"""Packages as libraries of build systems: CMake, Arduino, PlatformIO, ESP-IDF, Zephyr, CMSIS packs;
and as the submitter's part of MLPerf Tiny.

:mod:`.formats` lists them: each is a folder of templates and the places of the model's files;
:mod:`.library` writes one, :mod:`.test_vector` the recorded inputs and outputs of its example.
"""
