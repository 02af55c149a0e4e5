"""Boards, and firmware built for them and run on them."""
