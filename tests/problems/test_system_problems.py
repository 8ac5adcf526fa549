"""Systems: their components, and parts that do not fit each other."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import SWAP, problem, system, wave

import sdifp
from sdifp.problems import Free, Initial
from sdifp.training import MLP, RandomPoints, Training

pytestmark = pytest.mark.usefixtures("as_user")
KEY = jax.random.key(1)
three = lambda x, *t: jnp.stack([x[0], x[0], x[0]])
BARE = {"components": None, "units": None}
RATE = sdifp.time_derivative()


def test_components_are_counted_and_named():
    assert (problem.shape, problem.components) == ((2,), ("height", "flow"))
    counted = system(**BARE)
    assert counted.components == ("u1", "u2")
    assert counted.units == ("", "")
    assert system(components=2, units=None).components == ("u1", "u2")
    one = sdifp.problems.advection()
    assert (one.shape, one.components, one.units) == ((), ("u",), ("",))


def test_a_system_agrees_with_itself():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem.check()


INITIAL = {"conditions": [Initial(three)]}
REFUSED = [
    (
        INITIAL,
        r"initial must return 2 numbers \(one for each component\) for one point of "
        r"shape \(1,\), as components = \(height, flow\) says, got shape \(3,\)",
    ),
    (
        {"reference": three, **BARE},
        r"reference must return 2 numbers .*, as initial does, got shape \(3,\)",
    ),
    (
        {"reference": lambda x, t: x[0]},
        r"reference must return 2 numbers .*, got shape \(\)",
    ),
    (
        {"equation": sdifp.Residual(np.ones((2, 3)) @ RATE)},
        r"equation must be one of a field with 2 components, height, flow: a matrix .* "
        r"each of the 2 components of u, got shape \(2, 3\)",
    ),
    (
        {"equation": sdifp.Residual(RATE, weights=[1.0, 1.0, 1.0])},
        "equation must be .*2 components, height, flow: weights .*are 2, got 3",
    ),
    (
        {"invariants": [sdifp.Mass(0.0, component=2)]},
        r"mass\[2\] is of component 2, and the field has 2, height, flow, counted",
    ),
    (
        {"invariants": [sdifp.Moment(lambda x: jnp.ones(3), 1.0)]},
        "weight of moment must return .* for each of its 2 components, got",
    ),
    (
        {"conditions": [Initial(lambda x: 1j * wave(x, 0.0))]},
        "initial must return real numbers, got complex128: .* two real components",
    ),
    ({"components": ("a", "a")}, r"components must be a number or different names"),
    ({"components": 0}, "components must be at least 1, got 0"),
    ({"components": True}, "components must be a number or different names, got True"),
    ({"components": 2.0}, "components must be a number or different names, got 2.0"),
    ({"units": ("m",)}, "units must hold a text for each component, height, flow, got"),
    (
        {"mass": [0.0, 1.0]},
        r"mass must be a number .*, got \[0.0, 1.0\]; .*component",
    ),
    ({"positive": True}, "positive must be False for a system"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_parts_that_do_not_fit_are_named(changes, words):
    with pytest.raises((TypeError, ValueError), match=words):
        system(**changes)


def test_a_network_with_another_number_of_components_is_named():
    recipe = sdifp.training.recipe_for(problem).replace(
        network=MLP(4, 1), points=RandomPoints(2, 4), nodes=16
    )
    box = problem.domain
    for count, shape in ((3, r"shape \(3,\)"), (None, r"\(\)")):
        network = MLP(4, 1).build(box, 1.0, components=count, key=KEY)
        words = (
            r"network must return 2 numbers \(one for each component\) for a point .*, "
            rf"as two-waves needs it for height, flow, got {shape}"
        )
        with pytest.raises(ValueError, match=words):
            Training(problem, recipe=recipe, network=network, check=False, key=KEY)


@pytest.mark.parametrize(
    ("operator", "idle"),
    [
        (np.array([[1.0, 0.0]]) @ RATE, "flow"),
        (np.array([[0.0, 1.0]]) @ RATE, "height"),
        (np.zeros((1, 2)) @ RATE, "height, flow"),
    ],
)
def test_a_component_that_no_equation_touches_is_warned_of(operator, idle):
    one = system(equation=sdifp.Residual(operator), invariants=[], reference=None)
    words = f"no residual of two-waves depends on {idle}: the training leaves it"
    with pytest.warns(UserWarning, match=words):
        one.check()


def test_what_is_of_one_component_alone_refuses_a_system():
    box = sdifp.Box([0.0], [1.0])
    energy = sdifp.Functional(lambda u, grad: jnp.sum(grad**2))
    still = sdifp.Problem(
        box, energy, [Free()], squared_norm=1.0, components=2, name="pair"
    )
    with pytest.raises(
        ValueError, match="one component for eigenpairs, and pair has 2"
    ):
        sdifp.training.eigenpairs(still, 2, key=KEY)
    recipe = sdifp.training.recipe_for(still)
    method = sdifp.training.PinAndRescale()
    with pytest.raises(ValueError, match="fields with one component, and pair has 2"):
        Training(still, method, recipe=recipe, check=False, key=KEY)


def test_the_matrix_of_the_tests_is_the_right_one():
    x, t = jnp.array([0.4]), jnp.asarray(0.3)
    slope = jax.jacfwd(wave)(x, t)[:, 0]
    np.testing.assert_allclose(jax.jacfwd(wave, 1)(x, t), SWAP @ slope, rtol=1e-12)
