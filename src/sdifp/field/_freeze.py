"""freeze: scale and shift as functions of time, computed once, for inference."""

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
from ._field import ConservedField
from ._gradient import Exact
from ._protocol import evaluate
from ._slice import Times

_Table = Array | np.ndarray


class FrozenFieldSlice(eqx.Module):
    """A frozen field at one time: a function of one point."""

    net: Callable[..., Array]
    time: Float[Array, ""] | None
    scale: Float[Array, "..."]
    shift: Float[Array, "..."]
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The field at one point of this time."""
        raw = evaluate(self.net, x, self.time)
        offset = self.shift if self.profile is None else self.shift * self.profile(x)
        return self.scale * raw + offset


class FrozenField(eqx.Module):
    """A conserved field whose scale and shift are interpolated in time: a point costs
    one evaluation of the network, one multiplication and one addition.

    Made by `ConservedField.freeze`. `accuracy` is the largest error of the
    interpolated scale and shift that was measured between the nodes, relative to the
    largest scale, and to the largest of shift and network.
    """

    net: Callable[..., Array]
    times: _Table | None
    "the nodes in time; None for a network without time"
    weights: _Table | None
    "barycentric weights of the nodes"
    scales: _Table
    shifts: _Table
    accuracy: float = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def coefficients(self, t: ArrayLike | None = None) -> tuple[Array, Array]:
        """Scale and shift at time t, for each component."""
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

    def _interpolated(self, time: Array | None) -> tuple[Array, Array]:
        """Scale and shift, without a check of the time."""
        if time is None:
            return jnp.asarray(self.scales[0]), jnp.asarray(self.shifts[0])
        table = jnp.stack([jnp.asarray(self.scales), jnp.asarray(self.shifts)], axis=1)
        nodes, weights = jnp.asarray(self.times), jnp.asarray(self.weights)
        # Back into the range in value, without a kink in the derivative.
        over = time - jnp.clip(time, nodes[0], nodes[-1])
        time = time - jax.lax.stop_gradient(over)
        both = _barycentric(time, nodes, weights, table)
        return both[0], both[1]

    def __call__(
        self, x: Float[Array, " d"], t: ArrayLike | None = None
    ) -> Float[Array, "..."]:
        """The field at one point and time."""
        return self.at(t)(x)

    def at(self, t: ArrayLike | None = None) -> "FrozenFieldSlice":
        """The field at time t. Outside `jit` the time is checked here, once; inside,
        the check runs with the program and costs a few per cent."""
        scale, shift = self.coefficients(t)
        time = None if t is None else jnp.asarray(t, jnp.result_type(float))
        return FrozenFieldSlice(self.net, time, scale, shift, self.profile)

    def save(self, file: str | Path) -> None:
        """Write the tables of scale and shift and the arrays of the network to an
        `.npz` file, without pickle and with a checksum. A file of that name is replaced
        when the new one is complete, and not before."""
        tables = (self.times, self.weights, self.scales, self.shifts)
        known: list[Any] = [None if a is None else np.asarray(a) for a in tables]
        known += [self.accuracy, self.dimension, self.profile is not None]
        save_frozen(
            file,
            FrozenTables(*known),
            {name: np.asarray(leaf) for name, leaf in _leaves(self.net).items()},
        )

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
            the file.
        - `profile`: the profile, if the field had one; functions are not saved.
        """
        tables, saved = load_frozen(file, profile is not None)
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
        _check_output(file, whole, tables)
        return FrozenField(whole, *tables[:-1], profile)

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
            now = FrozenFieldSlice(net, t, *self._interpolated(t), self.profile)
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
    file: str | Path, net: Callable[..., Array], tables: FrozenTables
) -> None:
    """Raise `ValueError` unless a network has as many components as the tables."""
    has_time = tables.times is not None
    what = f"a point of shape ({tables.dimension},)" + (" and a time" * has_time)
    try:
        shape = output_of(net, tables.dimension, has_time).shape
    except Exception as error:
        raise ValueError(
            f"net must take {what}, as the network in {file}: {first_line(error)}"
        ) from None
    if shape != tables.scales.shape[1:]:
        raise ValueError(
            f"net must give shape {tables.scales.shape[1:]} for {what}, as the network "
            f"in {file}, got {shape}"
        )


def freeze(
    field: ConservedField, times: Times | None, tolerance: float | None
) -> FrozenField:
    """Tabulate scale and shift; see `ConservedField.freeze`."""
    exact = field.with_gradient(Exact(getattr(field.gradient, "chunk", Exact().chunk)))

    def sample(grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, sizes = [], []
        for t in grid.tolist():
            row, size, status = _coefficients(exact, jnp.asarray(t))
            if np.any(np.asarray(status) >= Status.DEGENERATE):
                exact.check([t])
            rows.append(np.asarray(row))
            sizes.append(np.asarray(size))
        return np.stack(rows), np.stack(sizes)

    if times is None:
        now = exact.at()
        now.check()
        one = np.asarray(now.scale)[None], np.asarray(now.shift)[None]
        tables: tuple[Any, ...] = (None, None, *one, 0.0)
    else:
        eps = float(jnp.finfo(jnp.result_type(float)).eps)
        grid, weights, both, accuracy = tabulate(sample, times, tolerance, eps)
        tables = (grid, weights, both[:, 0], both[:, 1], accuracy)
    tables = (*tables, field.rule.dimension, field.profile)
    return FrozenField(field.net, *tables)


@eqx.filter_jit
def _coefficients(field: ConservedField, t: Array) -> tuple[Array, Array, Array]:
    """Scale and shift, the size of the raw network, and the status."""
    now = field.at(t)
    size = jnp.sqrt(now.moments.second_moment)
    return jnp.stack([now.scale, now.shift]), size, now.status


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
