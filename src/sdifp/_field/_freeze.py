"""freeze: scale and shift as functions of time, computed once, for inference."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._checks import is_concrete
from .._core import Status, tabulate
from ._field import ConservedField
from ._gradient import Exact
from ._program import BLOCK, programs
from ._targets import Times

# The file's format; a reader refuses what it does not know.
_VERSION = 1

_Table = Array | np.ndarray

_UNREADABLE = (ValueError, KeyError, OSError, TypeError, EOFError, zipfile.BadZipFile)


class FrozenFieldAt(eqx.Module):
    """A frozen field at one time: a function of one point."""

    net: Callable[..., Array]
    time: Float[Array, ""] | None
    scale: Float[Array, "..."]
    shift: Float[Array, "..."]
    profile: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The field at one point of this time."""
        raw = self.net(x) if self.time is None else self.net(x, self.time)
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
        if self.times is None or self.weights is None:
            if t is not None:
                raise ValueError(f"t must be left out: no time here, got {t!r}")
            return jnp.asarray(self.scales[0]), jnp.asarray(self.shifts[0])
        if t is None:
            raise ValueError("t must be given: this field depends on time")
        if jnp.shape(t) != ():
            raise ValueError(
                f"t must be one time, got shape {jnp.shape(t)}; leave the batch to vmap"
            )
        first, last = self.times[0], self.times[-1]
        time = jnp.asarray(t, jnp.result_type(float))
        # A time in single precision may be rounded past the end of the range.
        slack = 1e-6 * (last - first)
        outside = ~((time >= first - slack) & (time <= last + slack))
        if is_concrete(outside):
            if bool(outside):
                raise ValueError(
                    f"t must lie in the frozen range, {float(first):g} to "
                    f"{float(last):g}, got {float(time):g}"
                )
        else:
            time = eqx.error_if(time, outside, "t is outside the frozen range")
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

    def at(self, t: ArrayLike | None = None) -> "FrozenFieldAt":
        """The field at time t. Outside `jit` the time is checked here, once; inside,
        the check runs with the program and costs a few per cent."""
        scale, shift = self.coefficients(t)
        time = None if t is None else jnp.asarray(t, jnp.result_type(float))
        return FrozenFieldAt(self.net, time, scale, shift, self.profile)

    def save(self, file: str | Path) -> None:
        """Write the tables, the leaves of the network, and its operations for
        `sdifp_numpy`, to an `.npz` file without pickle.

        `sdifp_numpy.load(file)` evaluates the field with NumPy alone, and says so if
        the network has an operation that it does not know.
        """
        leaves = jax.tree.leaves(eqx.filter(self.net, eqx.is_array))
        arrays = {f"leaf_{k:04d}": np.asarray(leaf) for k, leaf in enumerate(leaves)}
        if self.times is not None and self.weights is not None:
            arrays["times"] = np.asarray(self.times)
            arrays["weights"] = np.asarray(self.weights)
        arrays |= {
            "version": np.array(_VERSION),
            "scales": np.asarray(self.scales),
            "shifts": np.asarray(self.shifts),
            "accuracy": np.array(self.accuracy),
            "has_profile": np.array(self.profile is not None),
            "dimension": np.array(self.dimension),
            "block": np.array(BLOCK),
        }
        has_time = self.times is not None
        arrays |= dict(programs(self.net, self.profile, self.dimension, has_time))
        with Path(file).open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]

    @staticmethod
    def load(
        file: str | Path,
        net: Callable[..., Array],
        profile: Callable[[Array], Array] | None = None,
    ) -> "FrozenField":
        """Read what `save` wrote.

        **Arguments:**

        - `net`: a network of the same structure; its arrays are replaced by those of
            the file.
        - `profile`: the profile, if the field had one; functions are not saved.
        """
        try:
            with Path(file).open("rb") as stream:
                data = dict(np.load(stream, allow_pickle=False))
            version = int(data["version"])
            has_profile = bool(data["has_profile"])
        except _UNREADABLE as error:
            raise ValueError(f"{file} is not a frozen field: {error}") from None
        if version != _VERSION:
            raise ValueError(
                f"{file} has format {version}, and this version of sdifp reads "
                f"{_VERSION}"
            )
        if has_profile != (profile is not None):
            need = "needs" if has_profile else "has no"
            raise ValueError(f"{file} {need} a profile, got profile = {profile!r}")
        params, rest = eqx.partition(net, eqx.is_array)
        leaves, structure = jax.tree.flatten(params)
        saved = [data[name] for name in sorted(data) if name.startswith("leaf_")]
        shapes, wanted = [a.shape for a in saved], [a.shape for a in leaves]
        if shapes != wanted:
            raise ValueError(
                f"net must have arrays of shapes {shapes} as the saved network, got "
                f"{wanted}"
            )
        new = [
            # Formats that NumPy lacks (bfloat16) are stored as plain bytes.
            jnp.asarray(a.view(b.dtype) if a.dtype.kind == "V" else a, b.dtype)
            for a, b in zip(saved, leaves, strict=True)
        ]
        return FrozenField(
            eqx.combine(jax.tree.unflatten(structure, new), rest),
            data.get("times"),
            data.get("weights"),
            data["scales"],
            data["shifts"],
            float(data["accuracy"]),
            int(data["dimension"]),
            profile,
        )


def freeze(
    field: ConservedField, times: Times | None, tolerance: float | None
) -> FrozenField:
    """Tabulate scale and shift; see `ConservedField.freeze`."""
    chunk = getattr(field.gradient, "chunk", Exact().chunk)
    exact = eqx.tree_at(lambda u: u.gradient, field, Exact(chunk))
    d = field.rule.dimension

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
        exact.check()
        scale, shift = np.asarray(now.scale), np.asarray(now.shift)
        return FrozenField(
            field.net, None, None, scale[None], shift[None], 0.0, d, field.profile
        )
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    grid, weights, table, accuracy = tabulate(sample, times, tolerance, eps)
    return FrozenField(
        field.net, grid, weights, table[:, 0], table[:, 1], accuracy, d, field.profile
    )


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
