"""Closed forms of the paper around the projection: errors and derivatives."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

Number = Num[Array, "..."] | float


def continuum_errors(
    *,
    mean: Number,
    variance: Number,
    rule_mean: Number,
    rule_variance: Number,
    true_mean: Number,
    true_variance: Number,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Errors of the *continuum* moments of a field that is exact on the rule.

    Paper, proposition on continuum errors, for targets m and V and a raw field with
    moments mu_Q, sigma_Q^2 on the rule and mu, sigma^2 in the continuum::

        e1 = I[u] - m   = a (mu - mu_Q),            a = sqrt(V / sigma_Q^2),
        e2 = I[u^2] - s = V (sigma^2 / sigma_Q^2 - 1) + 2 m e1 + e1^2.

    Needs `rule_variance > 0`. For the nearest branch, without a profile.

    Examples:
        >>> e1, e2 = continuum_errors(mean=0.0, variance=1.0, rule_mean=0.5,
        ...     rule_variance=0.25, true_mean=0.75, true_variance=0.25)
        >>> print(f"{e1:.2f} {e2:.2f}")
        0.50 0.25
    """
    rule_variance = jnp.asarray(rule_variance)
    scale = jnp.sqrt(variance / rule_variance)
    e1 = scale * (true_mean - jnp.asarray(rule_mean))
    e2 = variance * ((true_variance - rule_variance) / rule_variance)
    return e1, e2 + 2.0 * mean * e1 + e1 * e1


def floor_perturbation(
    *, variance: Number, rule_variance: Number, floor: Number
) -> Float[Array, "..."]:
    """What a variance floor does to the second moment on the rule.

    Paper, proposition on variance regularization::

        Q[u^2] - s = V (sigma_Q^2 / max(sigma_Q^2, floor) - 1).

    Examples:
        >>> lost = floor_perturbation(variance=2.0, rule_variance=0.25, floor=1.0)
        >>> print(f"{lost:.2f}")
        -1.50
    """
    kept = jnp.maximum(rule_variance, floor)
    return variance * ((rule_variance - kept) / kept)


def coefficient_derivatives(
    *, scale: Number, rule_mean: Number, rule_variance: Number
) -> dict[str, dict[str, Float[Array, "..."]]]:
    """Derivatives of scale and shift by the raw moments `mu = Q[f]`, `mu2 = Q[f^2]`.

    Paper, equation of the coefficient Jacobians::

        d scale / d mu  =  scale mu / sigma^2    d scale / d mu2 = -scale / (2 sigma^2)
        d shift / d mu  = -scale - mu (d scale / d mu)
        d shift / d mu2 =        - mu (d scale / d mu2)

    (The appendix has the sign of the mu2 term wrong.) By the raw *variance* at fixed
    mean they are `-scale / (2 sigma^2)` and `mu scale / (2 sigma^2)`.

    Examples:
        >>> d = coefficient_derivatives(scale=2.0, rule_mean=1.0, rule_variance=0.5)
        >>> print(d["scale"]["mean"], d["shift"]["second_moment"])
        4.0 2.0
    """
    scale, mean, variance = map(jnp.asarray, (scale, rule_mean, rule_variance))
    scale_mean = scale * mean / variance
    scale_second = -scale / (2.0 * variance)
    return {
        "scale": {"mean": scale_mean, "second_moment": scale_second},
        "shift": {
            "mean": -scale - mean * scale_mean,
            "second_moment": -mean * scale_second,
        },
    }
