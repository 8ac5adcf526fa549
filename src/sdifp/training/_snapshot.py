"""The arrays of a tree by name, and back."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree, by their paths; all else is left out."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves if _is_array(leaf)}


def from_arrays(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The template with its arrays replaced by those of `to_arrays`. Raises
    `ValueError` unless names, shapes and types are the same."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    wanted = {_name(path): leaf for path, leaf in leaves if _is_array(leaf)}
    for name in sorted(wanted.keys() ^ arrays.keys()):
        what = "is missing" if name in wanted else "is not of this training"
        raise ValueError(f"arrays do not fit: {name} {what}")
    for name, leaf in wanted.items():
        got = arrays[name]
        if (got.shape, got.dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(
                f"arrays do not fit: {name} must have shape {leaf.shape} and type "
                f"{leaf.dtype}, got {got.shape} and {got.dtype}"
            )
    new = [
        _like(leaf, arrays[_name(path)]) if _is_array(leaf) else leaf
        for path, leaf in leaves
    ]
    return jax.tree_util.tree_unflatten(structure, new)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _like(leaf: Any, array: np.ndarray) -> Any:
    return jnp.asarray(array) if isinstance(leaf, jax.Array) else array


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
