"""One clear sentence each."""

import math

import pytest
import torch
from nets import torch_net

import sdifp
import sdifp.torch as sdt

RULE = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [2.0], periodic=True), 32)

pytestmark = pytest.mark.usefixtures("as_user")


class Call(torch.nn.Module):
    """A module from a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def frozen_net():
    return torch_net().requires_grad_(False)


def mixed():
    net = torch_net()
    net[2].to("meta")
    return net


CASES = [
    (lambda: sdt.conserve(lambda x: x, RULE, 1.0), TypeError, "module must be a torch"),
    (lambda: sdt.conserve(torch_net(), RULE), ValueError, "give a target"),
    (lambda: sdt.conserve(torch_net(), 3, 1.0), TypeError, "rule must be a rule of"),
    (
        lambda: sdt.conserve(torch.nn.Embedding(5, 1), RULE, 1.0),
        ValueError,
        "module cannot be called in the dimension of the rule, 1",
    ),
    (
        lambda: sdt.conserve(torch_net(inputs=4), RULE, 1.0),
        ValueError,
        r"with points x \(3, 1\) and times t \(3, 1\)",
    ),
    (
        lambda: sdt.conserve(Call(torch.sin), RULE, 1.0),
        ValueError,
        "module takes both 1 and 2 columns: say has_time",
    ),
    (
        lambda: sdt.conserve(frozen_net(), RULE, 1.0),
        ValueError,
        "6 parameters and none requires grad",
    ),
    (
        lambda: sdt.conserve(
            torch_net(), RULE, 1.0, invariants=[sdifp.Density(lambda u: u**3, "cube")]
        ),
        ValueError,
        "invariants of sdifp.torch must be Mass.*got cube, Density of component 0",
    ),
    (
        lambda: sdt.conserve(mixed(), RULE, 1.0),
        ValueError,
        "module must be on one device, got 0.weight on cpu and 2.weight on meta",
    ),
    (
        lambda: sdt.conserve(torch_net().to("meta"), RULE, 1.0),
        ValueError,
        "got meta, which holds no numbers",
    ),
    (
        lambda: sdt.conserve(Call(lambda x: x.long()), RULE, 1.0, has_time=False),
        TypeError,
        "floating-point numbers, got torch.int64",
    ),
    (
        lambda: sdt.conserve(Call(lambda x: x[:2]), RULE, 1.0, has_time=False),
        ValueError,
        r"got \(2, 1\) for 3",
    ),
    (
        lambda: sdt.conserve(
            torch.nn.Sequential(torch_net(), torch.nn.Dropout(0.5)), RULE, 1.0
        ),
        ValueError,
        "in training mode; call eval",
    ),
    (
        lambda: sdt.conserve(
            torch.nn.Sequential(
                torch.nn.Linear(2, 9), torch.nn.BatchNorm1d(9), torch.nn.Linear(9, 1)
            ),
            RULE,
            1.0,
        ),
        ValueError,
        "in training mode; call eval",
    ),
    (
        lambda: sdt.conserve(
            Call(torch.nn.functional.dropout), RULE, 1.0, has_time=False
        ),
        ValueError,
        "three points together were unlike two of them",
    ),
    (
        lambda: sdt.conserve(
            Call(lambda x, t: x * t * torch.ones(1, requires_grad=True)), RULE, 1.0
        ),
        ValueError,
        "beside its own parameters",
    ),
    (
        lambda: sdt.conserve(
            torch_net(), RULE, 1.0, profile=torch.nn.Linear(1, 1).double()
        ),
        ValueError,
        "profile must not have parameters",
    ),
    (
        lambda: sdt.conserve(torch_net(), RULE, torch.ones((), requires_grad=True)),
        ValueError,
        "mass must not be a tensor that requires grad",
    ),
    (
        lambda: sdt.conserve(torch_net(), RULE, 1.0, gradient=sdifp.field.Exact()),
        TypeError,
        "of sdifp.torch",
    ),
    (
        lambda: sdt.conserve(torch_net(), RULE, 1.0, gradient=sdt.Subsampled(64)),
        ValueError,
        "k must be at most the 32 nodes of the rule, got 64",
    ),
    (lambda: sdt.Subsampled(0), ValueError, "k must be a positive integer, got 0"),
    (lambda: sdt.Exact(chunk=2.5), ValueError, "chunk must be a positive integer"),
    (
        lambda: sdt.conserve(torch_net(), RULE, [1.0, 2.0]),
        ValueError,
        "mass has 2 entries",
    ),
    (
        lambda: sdt.conserve(torch_net(outputs=2), RULE, 1.0),
        ValueError,
        "a list with one entry for each of the 2 components",
    ),
    (
        lambda: sdt.conserve(torch_net(), RULE, math.nan),
        ValueError,
        "mass must be real and finite, got nan",
    ),
    (
        lambda: sdt.conserve(torch_net(inputs=1), RULE, lambda t: t),
        ValueError,
        "mass must be a number for a network without time",
    ),
    (
        lambda: sdt.conserve(
            torch_net(), RULE, squared_norm=1.0, profile=lambda x: x[:, 0]
        ),
        ValueError,
        "profile has no effect without mass",
    ),
    (
        lambda: sdt.conserve(torch_net(), RULE, 1.0, profile=lambda x: 0 * x[:, 0]),
        ValueError,
        "profile must not be zero",
    ),
    (
        lambda: sdt.conserve(torch_net(), RULE, 1.0, profile=lambda x: x.sum()),
        ValueError,
        "profile must return one number for each point",
    ),
    (
        lambda: sdt.conserve(
            torch_net(inputs=2001),
            sdt.Rule([0.0] * 2000, [9.0] * 2000, [[1.0] * 2000]),
            1.0,
        ),
        ValueError,
        "does not fit float64",
    ),
    (lambda: sdt.Rule([0.0], [1.0], [[2.0]]), ValueError, "lie in the box"),
    (lambda: sdt.Rule([0.0], [1.0], [[math.nan]]), ValueError, "finite"),
    (lambda: sdt.Rule([0.0], [1.0], [0.5]), ValueError, r"shape \(M, 1\)"),
    (lambda: sdt.Rule([1.0], [0.0], [[0.5]]), ValueError, "upper must be above lower"),
    (
        lambda: sdt.Rule([0.0], [1.0], [[0.5], [0.6]], [1.0, 0.0]),
        ValueError,
        r"positive, got weights\[1\] = 0.0",
    ),
    (
        lambda: sdt.Rule([0.0], [1.0], [[0.5], [0.6]], [1.0, 1.0]),
        ValueError,
        "weights must sum to 1, got 2",
    ),
    (
        lambda: sdt.Rule([0.0], [1.0], [[0.5]]).resample(),
        ValueError,
        "points is not randomised",
    ),
]


@pytest.mark.parametrize(("make", "kind", "words"), CASES)
def test_construction(make, kind, words):
    with pytest.raises(kind, match=words) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1


def test_calls():
    u = sdt.conserve(torch_net(), RULE, 1.0, lambda t: 3 + t)
    x, t = torch.rand(4, 1).double(), torch.rand(4, 1).double()
    for arguments, kind, words in (
        ((torch.ones(4, 1, dtype=torch.int64), t), TypeError, "x must hold floating"),
        ((x, torch.ones(4, 1, dtype=torch.int64)), TypeError, "t must hold floating"),
        ((torch.rand(4, 3).double(), t), ValueError, "x must have 1 coordinates"),
        ((x, t[:3]), ValueError, r"t must be one time or have shape \(4,\)"),
        ((x,), ValueError, "t must be given"),
        ((x.to("meta"), t.to("meta")), ValueError, "x on meta and the rule on cpu"),
    ):
        with pytest.raises(kind, match=words):
            u(*arguments)
    u.net.to("meta")
    with pytest.raises(ValueError, match="x on cpu and the network on meta"):
        u(x, t)


def test_a_target_that_is_no_function_of_tensors():
    x, t = torch.rand(4, 1).double(), torch.rand(4, 1).double()
    u = sdt.conserve(torch_net(), RULE, lambda t: math.exp(t))
    with pytest.raises(ValueError, match="mass must be a function of a tensor"):
        u(x, t)
    u = sdt.conserve(torch_net(), RULE, lambda t: torch.ones(3))
    with pytest.raises(ValueError, match="mass must return one floating-point number"):
        u(x, t)


def test_partly_trainable_networks_and_networks_to_look_at_are_fine():
    net = torch_net()
    net[0].requires_grad_(False)
    sdt.conserve(net, RULE, 1.0)
    u = sdt.conserve(frozen_net(), RULE, 1.0, gradient=sdt.Detached())
    assert u.certificate([0.3]).holds


def test_values_that_are_not_finite_say_so():
    net = Call(lambda x: x / 0.0 - x / 0.0)
    u = sdt.conserve(net, RULE, 1.0, 3.0, has_time=False)
    assert u.at().status.item() == sdt.Status.NOT_FINITE
    with pytest.raises(ValueError, match="not finite"):
        u.check()


def test_certificate_arguments():
    u = sdt.conserve(torch_net(), RULE, 1.0, 3.0)
    with pytest.raises(ValueError, match="replicates must be at least 2, got 1"):
        u.certificate([0.1], replicates=1)
    with pytest.raises(ValueError, match="times must hold at least one time"):
        u.certificate([])
    other = sdifp.quadrature.trapezoid(sdifp.Box([0.0], [3.0], periodic=True), 8)
    with pytest.raises(ValueError, match="other_rule must live on the box"):
        u.certificate([0.1], other_rule=other)


def test_back_in_training_mode():
    layers = torch.nn.Linear(2, 9), torch.nn.BatchNorm1d(9), torch.nn.Linear(9, 1)
    u = sdt.conserve(torch.nn.Sequential(*layers).double().eval(), RULE, 1.0, 3.0)
    x = torch.rand(4, 1).double()
    u(x, 0.3)
    u.train()
    with pytest.raises(ValueError, match="1 is BatchNorm1d in training mode"):
        u(x, 0.3)
