"""Configurations: read, written, checked, and the objects that they stand for."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sdifp
from sdifp._config import Expression, listed, parse
from sdifp._config._objects import argument_docs, inner_makers, makers
from sdifp._nearest import nearest
from sdifp.runs import build, describe, precision_for


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", "Plain()"),
        ("post-hoc", "PostHoc()"),
        ("AUGMENTED_LAGRANGIAN", "AugmentedLagrangian()"),
        ("Soft( 10 )", "Soft(10)"),
        ("SDIFP(gradient=Subsampled(8), gauge=-0.5)", None),
        ("SDIFP(gradient=exact, rule=None)", "SDIFP(gradient=Exact(), rule=None)"),
    ],
)
def test_objects_are_read_in_the_words_of_the_library(text, written):
    found = sdifp.Config("kdv", method=text).method
    assert found == (text if written is None else written)
    assert sdifp.Config("kdv", method=found).method == found


numbers = st.one_of(st.integers(-9, 9), st.floats(-1e6, 1e6), st.booleans(), st.none())
names = st.sampled_from(["Adam", "Cosine", "Exact"])
trees = st.recursive(
    st.one_of(numbers, st.text("abc", max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(tuple),
        st.builds(
            Expression,
            names,
            st.lists(inner, max_size=2).map(tuple),
            st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=2)
            .map(dict.items)
            .map(tuple),
        ),
    ),
    max_leaves=6,
)


@given(
    st.builds(Expression, names, st.lists(trees, max_size=3).map(tuple), st.just(()))
)
def test_what_is_written_is_read_again(expression):
    known = dict.fromkeys(["Adam", "Cosine", "Exact"], "")
    assert parse("field", str(expression), known, known) == expression


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"problem": "kvd"}, "problem: unknown name 'kvd'; did you mean kdv?"),
        ({"problem": "xx"}, "unknown name 'xx'; there are advection, "),
        ({"method": "Adam()"}, "method: unknown name 'Adam'"),
        ({"optimiser": "Adam(decay=Cosin())"}, "did you mean Cosine?"),
        ({"method": "Soft(__import__('os'))"}, "method: unknown name '__import__'"),
        ({"method": "Soft(a.b)"}, "method must be a name with arguments"),
        ({"method": "Soft(**x)"}, "got 'Soft(**x)'"),
        ({"method": "Soft(1"}, "got 'Soft(1'"),
        ({"method": "3"}, "unknown name '3'"),
        ({"method": "[1]"}, "method must be a name with arguments"),
        ({"steps": "many"}, "steps must be a whole number, got 'many'"),
        ({"steps": True}, "steps must be a whole number, got True"),
        ({"steps": 0}, "steps must be a positive integer, got 0"),
        ({"keep": 0}, "keep must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "and at most 4294967295, got -1"),
        ({"causal": float("nan")}, "causal must be finite and not negative, got nan"),
        ({"hard_initial": 1}, "hard_initial must be true or false, got 1"),
        ({"recipe": "fst"}, "recipe must be fast or accurate, got 'fst'"),
    ],
)
def test_wrong_fields_are_named(fields, words, as_user):
    with pytest.raises((TypeError, ValueError)) as caught:
        sdifp.Config(**{"problem": "kdv", **fields})
    assert words in str(caught.value)


def test_file_is_read_as_it_was_written(tmp_path):
    config = sdifp.Config(
        "wave(dimension=2)", method="Soft(2.5)", steps=7, causal=1, check=False
    )
    file = tmp_path / "c.toml"
    file.write_text(config.to_toml())
    assert sdifp.runs.load_config(file) == config
    changed = sdifp.runs.load_config(file, steps=8, method="plain")
    assert config.changes(changed) == [
        "method was 'Soft(2.5)' and is 'Plain()'",
        "steps was 7 and is 8",
    ]
    # How often is written changes no number.
    assert config.changes(dataclasses.replace(config, keep=9, every=3)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('problem = "kdv"\nstpes = 3', "unknown field 'stpes'; did you mean steps?"),
        ('problem = "kdv"\nsteps = "3"', "steps must be a whole number, got '3'"),
        ("steps = 3", "problem is missing"),
        ("problem = ", "is not TOML"),
    ],
)
def test_wrong_files_are_named(tmp_path, text, words, as_user):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"c\.toml.*") as caught:
        sdifp.runs.load_config(file)
    assert words in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.toml cannot be read: No such file"):
        sdifp.runs.load_config(tmp_path / "none.toml")


def test_the_dimension_can_be_given_apart():
    config = sdifp.Config("wave").with_dimension(3)
    assert config.problem == "wave(dimension=3)"
    assert config.with_dimension(2).problem == "wave(dimension=2)"
    with pytest.raises(ValueError, match=r"and once: got 2 beside wave"):
        sdifp.Config("wave(3)").with_dimension(2)
    with pytest.raises(ValueError, match=r"got 2 beside x\.py"):
        sdifp.Config("x.py").with_dimension(2)
    with pytest.raises(ValueError, match=r"left out for double_well, .* got 2"):
        sdifp.Config("double-well").with_dimension(2)


# The dimensions that a problem takes, of which some are tried; none where its dimension
# is its own.
DIMENSIONS = {
    "advection": (1, 2, 100),
    "allen_cahn": (),
    "cahn_hilliard": (),
    "cubic_schroedinger": (1, 5, 10),
    "double_well": (),
    "droplet": (),
    # These need a grid.
    "fokker_planck": (1, 2),
    "fokker_planck_eigen": (5, 10),
    "fredholm": (),
    "gross_pitaevskii": (1, 2),
    "heat_dirichlet": (1, 2),
    "kdv": (1, 2, 100),
    "linear_schroedinger": (5, 10),
    "manufactured": (1, 2, 100),
    "maxwell": (1, 2),
    "mean_field": (),
    "neumann_poisson": (1, 2, 100),
    "oscillator": (1, 2, 3),
    "reaction_diffusion": (1, 2, 100),
    "ring": (),
    "taylor_green": (),
    "torus_density": (),
    "wave": (1, 2, 100),
    "wave_system": (1, 2),
    "nonlinear_schroedinger": (),
    "nonlinear_schroedinger_soliton": (),
    "reaction_diffusion_pair": (),
    "shallow_water": (),
}
PROBLEMS = [
    f"{name}({d})" for name, taken in DIMENSIONS.items() for d in taken or ("",)
]


@pytest.mark.parametrize("recipe", ["fast", "accurate"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_complete_configuration_stands_for_the_same(problem, recipe, tmp_path):
    first = build(sdifp.Config(problem, recipe=recipe))
    assert first.recipe == sdifp.training.recipe_for(first.problem, recipe)
    file = tmp_path / "c.toml"
    file.write_text(first.config.to_toml())
    again = build(sdifp.runs.load_config(file))
    assert again.config == first.config
    assert again.recipe == first.recipe.replace(final_nodes=first.config.final_nodes)
    assert None not in {
        getattr(first.config, f) for f in ("network", "optimiser", "steps", "every")
    }


METHODS = [
    *("Plain", "PostHoc", "Soft(2)", "AugmentedLagrangian(2.0, 0.5)"),
    *("GridProjection(32)", "SDIFP(Subsampled(8), estimator=Independent(3), gauge=0)"),
]


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_built_and_described(method):
    built = build(sdifp.Config("advection", method=method))
    assert type(built.method).__name__ == method.split("(")[0]
    assert build(built.config).config == built.config
    assert describe(build(built.config).method) == built.config.method


def test_arguments_reach_the_objects():
    config = sdifp.Config(
        "reaction_diffusion(rate=0.25)",
        optimiser="Adam(2e-3, Cosine(warmup=0.1), clip=1.0)",
        gradient="Subsampled(12)",
        points="GridPoints(3, 5)",
        network="MLP(7, 2)",
        steps=11,
        every=4,
    )
    built = build(config)
    optimiser = built.recipe.optimiser
    assert (optimiser.rate, optimiser.decay, optimiser.clip) == (
        *(2e-3, sdifp.training.Cosine(0.1), 1.0),
    )
    assert built.recipe.points == sdifp.training.GridPoints(3, 5)
    assert built.recipe.network == sdifp.training.MLP(7, 2)
    assert (built.recipe.steps, built.config.every) == (11, 4)
    mass = lambda t: built.problem.mean_target(built.problem.invariants[0], t)
    masses = jax.vmap(mass)(jnp.array([0.0, 1.0]))
    assert np.allclose(np.diff(np.log(masses)), 0.25)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimiser": "Adam(rte=1)"}, "Adam takes rate, decay, clip"),
        ({"optimiser": "Adam(-1)"}, "optimiser: rate must be positive"),
        ({"problem": "kdv(dim=2)"}, "kdv takes dimension, duration"),
        ({"problem": "kdv(0)"}, "problem: dimension must be a positive integer"),
        ({"problem": "ring(2)"}, "ring takes diffusion, rotation"),
        ({"problem": "fokker_planck_eigen(3)"}, "dimension must be 5 or 10, got 3"),
        ({"problem": "oscillator(4)"}, "dimension must be at most 3, got 4"),
    ],
)
def test_arguments_that_objects_refuse_are_named(fields, words, as_user):
    with pytest.raises(ValueError, match=r".+") as caught:
        build(sdifp.Config(**{"problem": "kdv", **fields}))
    assert words in str(caught.value)


def test_names_are_those_of_the_library():
    names = {kind: set(found) for kind, found in listed().items()}
    assert names["problems"] == set(DIMENSIONS)
    assert names["methods"] == {
        *("Plain", "PostHoc", "Soft", "AugmentedLagrangian", "GridProjection"),
        *("PinAndRescale", "SDIFP"),
    }
    # A transformation of Optax cannot be written as text.
    assert names["optimisers"] == {"Adam", "LBFGS", "LevenbergMarquardt"}
    assert names["estimators"] == {
        *("Full", "Independent", "Symmetric", "Disjoint", "Shared", "stde"),
        "WarmUp",
    }
    assert names["gradients"] == {
        *("Exact", "Subsampled", "Lagged", "MiniBatch", "Detached", "Interpolated"),
    }
    assert names["networks"] == {"MLP"}
    assert names["points"] == {"RandomPoints", "GridPoints"}
    assert {"sobol", "lattice", "from_points", "rule_for"} < names["rules"]
    assert set(makers(sdifp.training.Decay)) == {"Constant", "Linear", "Cosine"}
    # What arguments may be, and their arguments.
    inner = set(inner_makers(sdifp.training.Method))
    assert names["gradients"] | names["estimators"] < inner
    assert {"Rademacher", "VmappedJet"} < inner
    assert "Cosine" not in inner
    assert nearest("gaus-legendre", names["rules"]) == "did you mean gauss_legendre?"


def test_all_names_and_fields_have_a_sentence():
    for kind, found in listed().items():
        for name, line in found.items():
            assert len(line) > 10, f"{kind}: {name}"
            assert "\n" not in line
    texts = sdifp.Config.help()
    assert list(texts) == [f.name for f in dataclasses.fields(sdifp.Config)]
    assert texts["seed"] == "Random seed."
    for text in texts.values():
        assert text[-1] == "."
    recipe = {f.name for f in dataclasses.fields(sdifp.Recipe)}
    assert set(argument_docs(sdifp.Recipe)) == recipe
    assert recipe < set(texts)


def test_the_precision_is_known_before_a_problem_of_the_library_is_made():
    known = lambda *args, **fields: precision_for(sdifp.Config(*args, **fields))
    assert known("kdv") == "float64"
    assert known("kdv(2)") == "float32"
    assert known("kdv", optimiser="Adam") == "float32"
    assert known("kdv(2)", precision="float64") == "float64"
    for problem in PROBLEMS:
        for recipe in ("fast", "accurate"):
            config = sdifp.Config(problem, recipe=recipe)
            built = build(config)
            # The recipe of one without time, or with a dimension of its own, is known
            # once it is made.
            later = built.problem.is_steady or problem.endswith("()")
            own = None if later else built.precision
            assert precision_for(config) == own
    # A file has to be executed, unless the optimiser needs float64 anyway.
    assert known("mine.py") is None
    assert known("mine.py", optimiser="Adam") is None
    assert known("mine.py", optimiser="LevenbergMarquardt") == "float64"


@pytest.mark.parametrize("version", [1, 3, "two"])
def test_files_of_another_format_are_refused(tmp_path, version, as_user):
    file = tmp_path / "c.toml"
    text = sdifp.Config("kdv").to_toml()
    assert "\nformat = 2\n" in text
    file.write_text(text.replace("format = 2", f"format = {version!r}"))
    with pytest.raises(ValueError, match=r"c\.toml") as caught:
        sdifp.runs.load_config(file)
    assert f"in format {version!r}" in str(caught.value)


def test_folders_and_reports_need_no_jax():
    code = (
        "import sys, sdifp._folder, sdifp._report, sdifp._cli._main, "
        "sdifp._cli._inspect; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
