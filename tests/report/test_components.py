"""Pictures of systems that are steady or have many dimensions, and names that stand in
them."""

import numpy as np
import pytest

from sdifp._folder import Saved
from sdifp._report._compared_fields import height_of_fields
from sdifp._report._solution import solution


def run(tmp_path, dimension, names, reference=True, units=None, cloud=False):
    """What a steady run has saved whose component k is `x1 + k`, and the reference
    twice that."""
    rng = np.random.default_rng(3)
    axis = np.linspace(0.0, 1.0, 5)
    if dimension == 1:
        x = axis[:, None]
    elif cloud:
        x = rng.random((40, dimension))
    else:
        x = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        x = np.pad(x, ((0, 0), (0, dimension - 2)))
    columns = [x[:, 0] + k for k in range(len(names))]
    data = {"u": np.stack(columns, -1)[None] if len(names) > 1 else columns[0][None]}
    if reference:
        data["reference"] = 2.0 * data["u"]
    if not cloud:
        data["x"] = x
    result = {
        "until": None,
        "dimension": dimension,
        "components": list(names),
        "units": list(units or [""] * len(names)),
        "metrics": {"l2_error": 0.5, "l2_errors": dict.fromkeys(names, 0.5)},
    }
    return Saved(tmp_path, {}, [], result, None, data)


PAIR = ("re", "im")
CASES = [
    (1, False, ["field", "difference"]),
    (2, False, ["field", "reference", "difference"]),
    (3, False, ["field", "reference", "difference"]),
    (5, True, ["field", "difference"]),
]


@pytest.mark.parametrize(("dimension", "cloud", "kinds"), CASES)
def test_each_component_has_its_pictures(tmp_path, dimension, cloud, kinds):
    group = solution(run(tmp_path, dimension, PAIR, cloud=cloud))
    names = [picture.name for picture in group.pictures]
    assert names == [f"{kind}-{name}" for name in PAIR for kind in kinds]
    assert group.caption.startswith("The field (re, im)")
    assert "reference" in group.caption
    words = {picture.name: picture.alt for picture in group.pictures}
    assert "re" in words["field-re"]
    assert "im" in words["field-im"]
    # The reference is twice the field, which is at most 1 and 2.
    worst = 1.0 if not cloud else 0.9
    assert words["difference-re"].startswith("The difference of re and its reference")
    found = float(words["difference-im"].split()[-1].rstrip("."))
    assert found == pytest.approx(worst + 1.0, abs=0.11)


@pytest.mark.parametrize(("dimension", "cloud", "kinds"), CASES)
def test_one_component_has_the_same_names_as_before(tmp_path, dimension, cloud, kinds):
    group = solution(run(tmp_path, dimension, ["u"], cloud=cloud))
    assert [picture.name for picture in group.pictures] == kinds
    assert group.caption.startswith("The field u")


@pytest.mark.parametrize("dimension", [1, 2])
def test_without_a_reference_there_are_the_fields_alone(tmp_path, dimension):
    group = solution(run(tmp_path, dimension, PAIR, reference=False))
    assert [picture.name for picture in group.pictures] == ["field-re", "field-im"]
    assert "reference" not in group.caption


def test_a_cloud_without_a_reference_has_no_pictures(tmp_path):
    assert not solution(run(tmp_path, 5, PAIR, False, cloud=True)).pictures


def test_names_and_units_are_no_mathematics(tmp_path):
    own = run(tmp_path, 1, ("$a_b$", "_c"), units=("$", "m/s"))
    group = solution(own)
    for picture in group.pictures:
        picture.figure.canvas.draw()
    titles = [p.figure.axes[0].get_title(loc="left") for p in group.pictures]
    assert titles[0] == r"\$a_b\$ [\$] and the reference"
    assert titles[2] == "_c [m/s] and the reference"


def test_fields_of_systems_do_not_stand_side_by_side(tmp_path):
    one, two = run(tmp_path, 1, ["u"]), run(tmp_path, 1, PAIR)
    assert height_of_fields([one, one]) > 0.0
    assert height_of_fields([one, two]) == height_of_fields([two, two]) == 0.0
