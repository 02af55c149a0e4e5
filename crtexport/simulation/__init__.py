"""Runs exported code on this computer, and the reference runtimes that it is compared with."""
