"""The fields of runs without time side by side: what is drawn, and when nothing is."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from sdifp._folder import Saved
from sdifp._report._compared_fields import draw_fields, height_of_fields


def run(tmp_path, u, dimension=2, until=None, reference=None, side=5, shift=0.0):
    """What a run of `u` on a grid has saved."""
    axis = np.linspace(0.0, 1.0, side) + shift
    if dimension == 1:
        x = axis[:, None]
    else:
        x = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        x = np.pad(x, ((0, 0), (0, dimension - 2)))
    solution = {"x": x, "u": u(x)[None]}
    if reference is not None:
        solution["reference"] = reference(x)[None]
    metrics = {"l2_error": None if reference is None else 0.25}
    result = {"until": until, "dimension": dimension, "metrics": metrics}
    return Saved(tmp_path, {}, [], result, None, solution)


def drawn(runs, labels):
    whole = Figure()
    draw_fields(whole.subfigures(1, 1), runs, labels)
    return whole.subfigs[0].axes


def first(x):
    return 1.0 + x[:, 0]


def second(x):
    return 1.0 + 2.0 * x[:, 1]


def test_images_have_the_right_values_the_range_of_the_reference_and_titles(tmp_path):
    runs = [run(tmp_path, u, reference=second) for u in (first, second)]
    axes = drawn(runs, ["a", "b"])
    titles = [a.get_title(loc="left") for a in axes]
    errors = "relative L2 error 2.5e-01"
    assert titles[:3] == [f"a\n{errors}", f"b\n{errors}", "reference\n"]
    meshes = [a.collections[0] for a in axes[:3]]
    # Along a row of the image x1 runs, from column to column; along a column x2.
    values = np.asarray(meshes[0].get_array()).reshape(5, 5)
    np.testing.assert_allclose(values, np.tile(1.0 + np.linspace(0, 1, 5), (5, 1)))
    np.testing.assert_array_equal(meshes[1].get_array(), meshes[2].get_array())
    assert {m.get_clim() for m in meshes} == {(1.0, 3.0)}


def test_a_field_of_the_other_sign_is_turned(tmp_path):
    # As `result` writes it, the reference of a run has the sign of its field.
    runs = [
        run(tmp_path, u, reference=u, dimension=1) for u in (first, lambda x: -first(x))
    ]
    (axes,) = drawn(runs, ["a", "b"])
    lines = [line.get_ydata() for line in axes.get_lines()]
    assert len(lines) == 3
    for line in lines:
        np.testing.assert_array_equal(line, lines[0])


def test_without_a_reference_every_field_is_in_the_range(tmp_path):
    runs = [run(tmp_path, first), run(tmp_path, second)]
    assert drawn(runs, ["a", "b"])[0].collections[0].get_clim() == (1.0, 3.0)


@pytest.mark.parametrize(
    ("count", "reference", "rows"),
    [(3, None, 1), (3, first, 2), (5, first, 2), (6, first, 3)],
)
def test_a_row_has_three_images(tmp_path, count, reference, rows):
    runs = [run(tmp_path, first, reference=reference)] * count
    one = height_of_fields([run(tmp_path, first)])
    assert height_of_fields(runs) == pytest.approx(rows * one)


@pytest.mark.parametrize(
    "other",
    [{"until": 1.0}, {"dimension": 3}, {"side": 6}, {"shift": 1e-9}],
    ids=["time", "dimension", "grid", "places"],
)
def test_nothing_is_drawn_where_fields_cannot_stand_side_by_side(tmp_path, other):
    runs = [run(tmp_path, first), run(tmp_path, first, **other)]
    assert height_of_fields(runs[:1]) > 0.0
    assert height_of_fields(runs) == 0.0
    assert height_of_fields(runs[::-1]) == 0.0


def test_a_scatter_or_nothing_at_all_is_not_drawn(tmp_path):
    scatter = run(tmp_path, first, dimension=3)
    assert height_of_fields([scatter]) == 0.0
    nothing = scatter._replace(solution={})
    assert height_of_fields([nothing]) == 0.0
