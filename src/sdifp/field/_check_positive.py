"""What a positive field cannot do, each refused in one sentence."""

from ..correction import AbsoluteFloor, RelativeFloor
from ..invariants import Mass, Moment, SquaredNorm, Variance
from ._positive import ByExponent


def check_one_component(shape: tuple[int, ...]) -> None:
    """Raise `ValueError` for a network with an output of another shape."""
    if shape:
        raise ValueError(
            f"net must return one number to be positive, got shape {shape}; correct "
            f"its components by themselves"
        )


def check_positive_field(
    family: ByExponent, floor: RelativeFloor | AbsoluteFloor
) -> None:
    """Raise `ValueError` for targets and options that a positive network does not
    allow."""
    if family.profile is not None:
        raise ValueError(
            f"profile must be left out for a positive field, which is not shifted, got "
            f"{family.profile!r}"
        )
    if floor != RelativeFloor():
        raise ValueError(
            f"floor must be left out for a positive field, which has no variance to "
            f"divide by, got {floor!r}"
        )
    invariants = family.prescribed.invariants
    for one in invariants:
        if not isinstance(one, Mass | Moment | SquaredNorm | Variance):
            raise ValueError(
                f"{one.name} cannot be prescribed of a positive field: it can have a "
                f"mass, and a squared norm or moments besides"
            )
    given = {type(one): one for one in invariants}
    if Mass not in given:
        names = ", ".join(one.name for one in invariants)
        raise ValueError(f"mass must be given for a positive field, got {names} alone")
    norm = given.get(SquaredNorm, given.get(Variance))
    if norm is not None and Moment in given:
        raise ValueError(
            f"{norm.name} and {given[Moment].name} cannot both be prescribed of a "
            f"positive field: a power has a squared norm, a tilt has moments"
        )
    if norm is not None and not family.positive.has_powers:
        raise ValueError(
            f"{norm.name} cannot be prescribed of the square of a network: its powers "
            f"are not smooth where it vanishes; use jax.numpy.exp or jax.nn.softplus"
        )
    mass = given[Mass].target
    if not mass.is_function and not mass.value(None) > 0.0:
        raise ValueError(
            f"mass must be positive for a positive field, got {mass.value(None):g}"
        )
