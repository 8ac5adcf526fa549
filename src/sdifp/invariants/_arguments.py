"""The arguments of functions of the user's, by their signature."""

import inspect
from collections.abc import Callable
from typing import Any


def needed_arguments(function: Callable[..., Any]) -> list[str]:
    """The names of the positional arguments that have no default; none where the
    signature is not known."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = parameters(function)
    return [p.name for p in known if p.kind in kinds and p.default is p.empty]


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """All that the signature has; none where it is not known."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
