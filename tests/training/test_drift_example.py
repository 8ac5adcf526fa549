"""The example of a density that drifts, on the page about training."""

import jax
import pytest
from pages import code_under

import sdifp


@pytest.mark.validate
def test_mass_and_centre_of_mass(capsys):
    # As it is, but for a training that takes no time.
    code = code_under("training.md", "Mass and centre of mass")
    recipe = sdifp.Recipe(
        sdifp.training.MLP(4, 1),
        steps=2,
        points=sdifp.training.RandomPoints(2, 8),
        nodes=64,
    )
    names = {"recipe": recipe}
    exec(code.replace("problem, key=", "problem, recipe=recipe, key="), names)
    field, problem = names["trained"].field, names["problem"]
    assert "exact on the rule" in capsys.readouterr().out
    rule = problem.rule(512, jax.random.key(0))
    now = field.at(0.6)
    mass = rule.integrate(now)
    centre = rule.integrate(lambda x: x[0] * now(x)) / mass
    assert float(mass) == pytest.approx(float(names["MASS"]), rel=1e-6)
    assert float(centre) == pytest.approx(0.75 + 0.5 * 0.6, rel=1e-6)
