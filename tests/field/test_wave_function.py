"""The example of a wave function in the documentation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import DOCS, code_under
from quick import once


def test_the_example_holds_the_norm_of_both_components_and_their_integrals(capsys):
    names = {}
    exec(code_under("exact.md", "Example: the norm of a wave function"), names)
    printed = capsys.readouterr().out
    shown = "".join(f"    {line}\n" for line in printed.splitlines())
    assert len(printed.splitlines()) == 2
    assert f"in units of the norm,\n\n{shown}" in (DOCS / "exact.md").read_text()

    u = names["u"]
    nodes, weights = u.rule.block(0, u.rule.size)
    values, scale, raw = once(
        lambda t: (
            jax.vmap(u.at(t))(nodes),
            u.at(t).scale,
            jax.vmap(lambda x: names["packet"](x, t))(nodes),
        )
    )(jnp.asarray(1.0))
    integral = lambda v: 24.0 * np.tensordot(weights, v, 1)
    assert integral(values**2).sum() == pytest.approx(np.sqrt(np.pi), rel=1e-14)
    mean = np.sqrt(2.0 * np.pi) * np.exp(-2.0)
    np.testing.assert_allclose(integral(values), [mean, 0.0], rtol=0, atol=1e-14)
    # It is not conserved by the packet itself.
    assert integral(raw**2).sum() > 1.4 * np.sqrt(np.pi)
    np.testing.assert_allclose(scale, 2.0**-0.25, rtol=1e-2)
