"""Loops in the instructions of Armv7-M and its successors, ordered block by block."""
