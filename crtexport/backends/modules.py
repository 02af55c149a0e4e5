"""The result of both printers: the files of a model, and what each is for."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

Split = Literal["none", "operator", "auto"]
Role = Literal["model", "kernels", "metadata", "registry", "constants"]

SPLITS: tuple[Split, ...] = get_args(Split)


class Module(Struct, frozen=True):
    """One file of generated code: ``name`` is its base name without suffix.

    ``role``: ``model`` has the entry points and, unless they are in other files, kernels and
    constants; ``kernels`` only kernels; ``constants`` only constants; ``metadata`` and ``registry``
    the tables that runtimes read. ``kernels`` are the symbols of the kernels in it, in the order of
    the artifact.
    """

    name: str
    role: Role
    kernels: tuple[str, ...] = ()
