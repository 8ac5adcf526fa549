"""What a user is told of a training, in one sentence each."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..field import Interpolated, as_field
from ._recipe import Recipe
from ._window import Window

# Of a warning: in the code that calls `train`.
_LEVEL = 4


def warn_of_precision(recipe: Recipe) -> None:
    """Where an optimiser needs more digits than there are."""
    if recipe.optimiser.uses_rows and jnp.result_type(float) != jnp.float64:
        name = type(recipe.optimiser).__name__
        warnings.warn(
            f"{name} needs float64 to converge, and JAX is at float32: call "
            f'jax.config.update("jax_enable_x64", True) first, or give a recipe with '
            f"another optimiser, as "
            f"recipe_for(problem).replace(optimiser=Adam(), steps=5000)",
            stacklevel=_LEVEL,
        )


def warn_of_interpolation(window: Window) -> None:
    """Where moments are interpolated in time although nobody asked for it."""
    mode, recipe = window.field.gradient, window.recipe
    asked = (getattr(window.method, "gradient", None), recipe.gradient)
    if isinstance(mode, Interpolated) and not any(
        isinstance(one, Interpolated) for one in asked
    ):
        warnings.warn(
            f"points has {recipe.points.n_t} times, each of which would cost a "
            f"quadrature: while it trains, the moments are interpolated between "
            f"{mode.times} times; SDIFP(gradient=Exact()) computes all of them",
            stacklevel=_LEVEL,
        )


def interpolation_note(times: int, error: float) -> str:
    """What held in training."""
    return (
        f"in training the moments were interpolated between {times} times of a window: "
        f"in between, at the end of the last one, the integrals held to {error:.1e} on "
        f"its rule"
    )


def why_unmet(field: Any, times: Array | None) -> str | None:
    """Why a field does not meet its targets at one of some times, if so."""
    try:
        as_field(field).check(None if times is None else np.asarray(times))
    except ValueError as error:
        return str(error)
    return None
