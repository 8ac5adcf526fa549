"""freeze: the correction as a function of time, computed once, for inference."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxtyping import Array, ArrayLike, Float

from .._checks import first_line, is_concrete, output_of
from .._core import FrozenTables, Status, fit_arrays, load_frozen, save_frozen, tabulate
from .._files import write_whole
from ._family import Affine, FrozenForm
from ._field import ConservedField
from ._gradient import Exact
from ._slice import Times

_Table = Array | np.ndarray


class FrozenFieldSlice(eqx.Module):
    """A frozen field at one time: a function of one point."""

    net: Callable[..., Array]
    time: Float[Array, ""] | None
    numbers: tuple[Array, ...]
    "of the correction at this time"
    form: FrozenForm = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The field at one point of this time."""
        raw = self.form.raw(self.net, x, self.time)
        return self.form(self.numbers, raw, x, self.time)


class FrozenField(eqx.Module):
    """A conserved field whose correction is interpolated in time: a point costs one
    evaluation of the network and, for scale and shift, one multiplication and one
    addition.

    Made by `ConservedField.freeze`. `accuracy` is the largest error of the interpolated
    numbers that was measured between the nodes: for scale and shift relative to the
    largest scale, and to the largest of shift and network.
    """

    net: Callable[..., Array]
    times: _Table | None
    "the nodes in time; None for a network without time"
    weights: _Table | None
    "barycentric weights of the nodes"
    tables: tuple[_Table, ...]
    "the numbers of the correction, times on the first axis"
    accuracy: float = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    form: FrozenForm = eqx.field(static=True)

    def coefficients(self, t: ArrayLike | None = None) -> tuple[Array, ...]:
        """The numbers of the correction at time t: scale and shift for each component,
        or the scales and the multiples of the weights."""
        if (t is None) != (self.times is None) or (t is not None and jnp.shape(t)):
            need = "be left out: this field has no time"
            if self.times is not None:
                need = "be one time, given as a number; leave a batch of them to vmap"
            raise ValueError(f"t must {need}, got {t!r}")
        if t is None or self.times is None:
            return self._interpolated(None)
        time = jnp.asarray(t, jnp.result_type(float))
        outside = self._outside(time)
        if is_concrete(outside) and bool(outside):
            raise ValueError(
                f"t must lie in the frozen range, {float(self.times[0]):g} to "
                f"{float(self.times[-1]):g}, got {float(time):g}"
            )
        if not is_concrete(outside):
            time = eqx.error_if(time, outside, "t is outside the frozen range")
        return self._interpolated(time)

    def _outside(self, time: Array) -> Array:
        assert self.times is not None
        first, last = self.times[0], self.times[-1]
        # A time in single precision may be rounded past the end of the range.
        slack = 1e-6 * (last - first)
        return ~((time >= first - slack) & (time <= last + slack))

    def _interpolated(self, time: Array | None) -> tuple[Array, ...]:
        """The numbers of the correction, without a check of the time."""
        tables = [jnp.asarray(table) for table in self.tables]
        if time is None:
            return tuple(table[0] for table in tables)
        flat = jnp.concatenate([table.reshape(len(table), -1) for table in tables], 1)
        nodes, weights = jnp.asarray(self.times), jnp.asarray(self.weights)
        # Back into the range in value, without a kink in the derivative.
        over = time - jnp.clip(time, nodes[0], nodes[-1])
        time = time - jax.lax.stop_gradient(over)
        shapes = [table.shape[1:] for table in tables]
        return _split(_barycentric(time, nodes, weights, flat), shapes)

    def __call__(
        self, x: Float[Array, " d"], t: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """The field at one point and time."""
        return self.at(t)(x)

    def at(self, t: ArrayLike | None = None) -> "FrozenFieldSlice":
        """The field at time t. Outside `jit` the time is checked here, once; inside,
        the check runs with the program and costs a few per cent."""
        numbers = self.coefficients(t)
        time = None if t is None else jnp.asarray(t, jnp.result_type(float))
        return FrozenFieldSlice(self.net, time, numbers, self.form)

    def save(self, file: str | Path) -> None:
        """Write the tables of the correction and the arrays of the network to an
        `.npz` file, without pickle and with a checksum. A file of that name is replaced
        when the new one is complete, and not before."""
        known = lambda a: None if a is None else np.asarray(a)
        tables = FrozenTables(
            times=known(self.times),
            weights=known(self.weights),
            accuracy=self.accuracy,
            dimension=self.dimension,
            has_profile=self.form.profile is not None,
            tables=dict(
                zip(self.form.names, map(np.asarray, self.tables), strict=True)
            ),
        )
        leaves = {name: np.asarray(leaf) for name, leaf in _leaves(self.net).items()}
        save_frozen(file, tables, leaves)

    @staticmethod
    def load(
        file: str | Path,
        net: Callable[..., Array],
        profile: Callable[[Array], Array] | None = None,
    ) -> "FrozenField":
        """Read what `save` wrote. A file that is damaged, or anything else, is a
        `ValueError`; nothing in it is executed.

        **Arguments:**

        - `net`: a network of the same structure; its arrays are replaced by those of
            the file. Where the field has invariants with weights, or of several
            components, a field that `conserve` makes of such a network and the same
            invariants: functions are not saved.
        - `profile`: the profile, if the field had one and `net` is a network.
        """
        form: FrozenForm = Affine(profile)
        if isinstance(net, ConservedField):
            if profile is not None:
                raise ValueError("profile must be left out where net is a field")
            form, net = net.family.frozen, net.net
        tables, saved = load_frozen(file, form.names, form.profile is not None)
        params, rest = eqx.partition(net, eqx.is_array)
        leaves = _leaves(net)
        fit_arrays(file, saved, leaves)
        new = [
            jnp.asarray(
                a.view(b.dtype) if (a := saved[k]).dtype.kind == "V" else a, b.dtype
            )
            for k, b in leaves.items()
        ]
        whole = eqx.combine(jax.tree.unflatten(jax.tree.structure(params), new), rest)
        _check_output(file, whole, tables, form)
        times, weights, accuracy, dimension, _, found = tables
        numbers = tuple(found.values())
        return FrozenField(whole, times, weights, numbers, accuracy, dimension, form)

    def export(
        self,
        file: str | Path,
        platforms: str | Sequence[str] = ("cpu", "cuda", "rocm", "tpu"),
    ) -> None:
        """Write the field as a program for users who have JAX, and neither sdifp nor
        the code of the network:

            field = jax.export.deserialize(bytearray(Path(file).read_bytes()))
            field.call(points, t)

        `points` has shape (n, d) for any n >= 1, and t is one time, left out if the
        network has none; both of the precision that JAX has now. Times outside the
        frozen range give NaN. The program cannot be differentiated.

        **Arguments:**

        - `platforms`: on which it shall run.
        """
        # As NumPy's, constants of the program belong to no device.
        params, rest = eqx.partition(self.net, eqx.is_array)
        net = eqx.combine(jax.tree.map(np.asarray, params), rest)

        def field(points: Array, t: Array | None = None) -> Array:
            now = FrozenFieldSlice(net, t, self._interpolated(t), self.form)
            values = jax.vmap(now)(points)
            if t is None:
                return values
            return jnp.where(self._outside(t), jnp.nan, values)

        known = ("cpu", "cuda", "rocm", "tpu")
        names = [platforms] if isinstance(platforms, str) else list(platforms)
        if not names or not set(names) <= set(known):
            raise ValueError(f"platforms must be some of {known}, got {platforms!r}")
        (n,) = export.symbolic_shape("n")
        shapes = (
            [(n, self.dimension)] if self.times is None else [(n, self.dimension), ()]
        )
        arguments = [jax.ShapeDtypeStruct(s, jnp.result_type(float)) for s in shapes]
        try:
            done = export.export(jax.jit(field), platforms=names)(*arguments)
            data = bytes(done.serialize())
        except Exception as error:
            raise ValueError(
                f"the network cannot be exported for {', '.join(names)} and any number "
                f"of points: {first_line(error)}"
            ) from error
        write_whole(Path(file), data)


def _leaves(net: Callable[..., Array]) -> dict[str, Array]:
    """The arrays of a network by name."""
    leaves = jax.tree.leaves(eqx.filter(net, eqx.is_array))
    return {f"leaf_{k:04d}": leaf for k, leaf in enumerate(leaves)}


def _check_output(
    file: str | Path,
    net: Callable[..., Array],
    tables: FrozenTables,
    form: FrozenForm,
) -> None:
    """Raise `ValueError` unless a network has as many components as the tables, and
    these fit together."""
    has_time = tables.times is not None
    what = f"a point of shape ({tables.dimension},)" + (" and a time" * has_time)
    try:
        shape = output_of(net, tables.dimension, has_time).shape
    except Exception as error:
        raise ValueError(
            f"net must take {what}, as the network in {file}: {first_line(error)}"
        ) from None
    found = [table.shape[1:] for table in tables.tables.values()]
    if shape != found[0]:
        raise ValueError(
            f"net must give shape {found[0]} for {what}, as the network in {file}, got "
            f"{shape}"
        )
    for name, own, wanted in zip(form.names, found, form.shapes(shape), strict=True):
        if own != wanted:
            raise ValueError(
                f"{file} is not a frozen field of these invariants: its {name} have "
                f"shape {own} at each time in place of {wanted}"
            )


def freeze(
    field: ConservedField, times: Times | None, tolerance: float | None
) -> FrozenField:
    """Tabulate the correction; see `ConservedField.freeze`."""
    exact = field.with_gradient(Exact(getattr(field.gradient, "chunk", Exact().chunk)))

    def sample(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, units = [], []
        for t in grid.tolist():
            row, unit, status = _numbers(exact, jnp.asarray(t))
            if np.any(np.asarray(status) >= Status.DEGENERATE):
                exact.check([t])
            rows.append(np.asarray(row))
            units.append(np.asarray(unit))
        return np.stack(rows), np.stack(units)

    form, d = field.family.frozen, field.rule.dimension
    if times is None:
        now = exact.at()
        now.check()
        still = tuple(np.asarray(a)[None] for a in field.family.tabulated(now)[0])
        return FrozenField(field.net, None, None, still, 0.0, d, form)
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    grid, weights, flat, accuracy = tabulate(sample, times, tolerance, eps)
    shapes = form.shapes(output_of(field.net, d, True).shape)
    tables = _split(flat, [(len(grid), *shape) for shape in shapes])
    return FrozenField(field.net, grid, weights, tables, accuracy, d, form)


@eqx.filter_jit
def _numbers(field: ConservedField, t: Array) -> tuple[Array, Array, Array]:
    """The numbers of the correction and their units, flat, and the status."""
    now = field.at(t)
    flat = lambda arrays: jnp.concatenate([jnp.ravel(a) for a in arrays])
    numbers, units = field.family.tabulated(now)
    return flat(numbers), flat(units), now.status


def _split(flat: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    """Arrays of these shapes, from their entries on the last axis."""
    out, first = [], 0
    for shape in shapes:
        last = first + math.prod(shape[flat.ndim - 1 :])
        out.append(flat[..., first:last].reshape(shape))
        first = last
    return tuple(out)


@jax.custom_jvp
def _barycentric(t: Array, nodes: Array, weights: Array, table: Array) -> Array:
    gap = t - nodes
    hit = gap == 0.0
    terms = weights / jnp.where(hit, 1.0, gap)
    # On a node the formula is 0/0: the value of that node alone.
    terms = jnp.where(jnp.any(hit), hit.astype(terms.dtype), terms)
    return jnp.tensordot(terms, table, axes=1) / jnp.sum(terms)


@_barycentric.defjvp
def _barycentric_jvp(
    primals: tuple[Array, ...], tangents: tuple[Array, ...]
) -> tuple[Array, Array]:
    # Interpolate the derivatives at the nodes: autodiff of the formula is wrong on a
    # node, where it takes one entry of the table, and loses digits beside one.
    t, nodes, weights, table = primals
    apart = nodes[:, None] - nodes[None, :] + jnp.eye(nodes.size)
    matrix = weights[None, :] / weights[:, None] / apart
    matrix = matrix - jnp.diag(jnp.diag(matrix))
    matrix = matrix - jnp.diag(jnp.sum(matrix, axis=1))
    slope = _barycentric(t, nodes, weights, jnp.tensordot(matrix, table, axes=1))
    moved = _barycentric(t, nodes, weights, tangents[3])
    return _barycentric(t, nodes, weights, table), slope * tangents[0] + moved
