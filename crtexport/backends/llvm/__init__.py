"""Artifacts as LLVM IR, and objects compiled from it in worker processes."""
