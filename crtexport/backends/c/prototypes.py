"""Declarations of a model's functions, without their semicolons."""

from __future__ import annotations

from collections.abc import Sequence

from crtexport.artifact import abi
from crtexport.artifact.model import Artifact
from crtexport.backends.c.literals import LINE


def run_prototype(artifact: Artifact) -> str:
    """Returns ``int32_t tvmgen_<module>_run(...)``."""
    prefix = artifact.prefix
    params = []
    if abi.takes_io(artifact):
        params = [
            f"const struct {prefix}_inputs *inputs", f"const struct {prefix}_outputs *outputs"
        ]
    if abi.caller_pools(artifact):
        params.append(_pools_parameter(artifact))
    if artifact.devices:
        params.append(f"const struct {prefix}_devices *devices")
    if len(params) < 2:
        return f"int32_t {prefix}_run({params[0] if params else 'void'})"
    return f"int32_t {prefix}_run(\n    " + ",\n    ".join(params) + ")"


def feed_prototypes(artifact: Artifact) -> tuple[str, str, str]:
    """Returns the declarations of the functions of :func:`.abi.feed_symbols`."""
    begin, feed, finish = abi.feed_symbols(artifact)
    pools = [_pools_parameter(artifact)] if abi.caller_pools(artifact) else []
    given = ["const void *rows", "uint32_t count", *pools]
    outputs = [f"const struct {artifact.prefix}_outputs *outputs", *pools]
    return _declared(begin, pools), _declared(feed, given), _declared(finish, outputs)


def _declared(symbol: str, params: Sequence[str]) -> str:
    together = f"int32_t {symbol}({', '.join(params) or 'void'})"
    return together if len(together) <= LINE else (
        f"int32_t {symbol}(\n    " + ",\n    ".join(params) + ")"
    )


def map_prototype(artifact: Artifact, symbol: str, side: str) -> str:
    """Returns the declaration of a function of :func:`.abi.io_maps`."""
    parameter = _pools_parameter(artifact) if abi.takes_workspace(artifact) else "void"
    return f"struct {artifact.prefix}_{side} {symbol}(\n    {parameter})"


def reset_prototype(artifact: Artifact) -> str:
    """Returns ``int32_t tvmgen_<module>_reset(...)``."""
    parameter = _pools_parameter(artifact) if abi.takes_state(artifact) else "void"
    return f"int32_t {artifact.prefix}_reset({parameter})"


def packed_prototype(symbol: str) -> str:
    """Returns the declaration of a packed function."""
    return (
        f"int {symbol}(\n"
        "    TVMValue *args, int *type_codes, int num_args, TVMValue *ret_value,\n"
        "    int *ret_type_code, void *resource_handle)"
    )


def _pools_parameter(artifact: Artifact) -> str:
    return f"const struct {artifact.prefix}_workspace_pools *workspace_pools"
