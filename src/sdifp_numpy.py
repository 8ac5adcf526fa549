"""Evaluate a frozen field with NumPy alone: no JAX, no sdifp.

    import sdifp_numpy
    field = sdifp_numpy.load("field.npz")     # written by FrozenField.save
    field(points, t)                          # points of shape (n, d)

This file needs nothing but NumPy and can be copied next to the data.
"""

import json
import math
import zipfile

import numpy as np

VERSION = 1


def load(file):
    """Read a frozen field."""
    try:
        with open(file, "rb") as stream:
            data = dict(np.load(stream, allow_pickle=False))
        version = int(data["version"])
    except (
        ValueError,
        KeyError,
        OSError,
        TypeError,
        EOFError,
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(f"{file} is not a frozen field: {error}") from None
    if version != VERSION:
        raise ValueError(
            f"{file} has format {version}, and this reader knows {VERSION}"
        )
    return Field(data)


class Field:
    """A frozen field; `accuracy` is that of scale and shift between their times."""

    def __init__(self, data):
        """Take the arrays of the file."""
        self.times, self.weights = data.get("times"), data.get("weights")
        self.scales, self.shifts = data["scales"], data["shifts"]
        self.accuracy = float(data["accuracy"])
        self._dimension, self._block = int(data["dimension"]), int(data["block"])
        self._net = _Program("network", "net", data)
        has_profile = bool(data["has_profile"])
        self._profile = _Program("profile", "profile", data) if has_profile else None

    def coefficients(self, t=None):
        """Scale and shift at time t."""
        if self.times is None:
            return self.scales[0], self.shifts[0]
        if t is None:
            raise ValueError("t must be given: this field depends on time")
        first, last = self.times[0], self.times[-1]
        slack = 1e-6 * (last - first)
        if not first - slack <= t <= last + slack:
            raise ValueError(
                f"t must lie in the frozen range, {first:g} to {last:g}, got {t:g}"
            )
        t = min(max(t, first), last)
        hit = np.flatnonzero(self.times == t)
        if hit.size:
            return self.scales[hit[0]], self.shifts[hit[0]]
        terms = self.weights / (t - self.times)
        terms = terms / terms.sum()
        return np.tensordot(terms, self.scales, 1), np.tensordot(terms, self.shifts, 1)

    def correct(self, values, t=None, profile=1.0):
        """Correct values of the raw network that were computed elsewhere."""
        scale, shift = self.coefficients(t)
        return scale * values + shift * profile

    def __call__(self, points, t=None):
        """The field at points of shape (n, d) and one time."""
        points = np.asarray(points, float)
        if points.ndim != 2 or points.shape[1] != self._dimension:
            raise ValueError(
                f"points must have shape (n, {self._dimension}), got {points.shape}"
            )
        time = () if self.times is None else (np.float64(0.0 if t is None else t),)
        scale, shift = self.coefficients(t)
        parts = []
        for start in range(0, len(points), self._block):
            part = points[start : start + self._block]
            full = np.concatenate(
                [part, np.repeat(part[-1:], self._block - len(part), 0)]
            )
            values = self._net(full, *time)
            offset = shift
            if self._profile is not None:
                phi = self._profile(full)
                offset = shift * phi.reshape(phi.shape + (1,) * (values.ndim - 1))
            parts.append((scale * values + offset)[: len(part)])
        return np.concatenate(parts) if parts else np.zeros((0, *np.shape(scale)))


class _Program:
    def __init__(self, what, name, data):
        program = json.loads(str(data[f"{name}_program"]))
        self._missing = program.get("unsupported")
        self._what = what
        self._operations = program.get("operations", [])
        self._result = program.get("result")
        keys = sorted(k for k in data if k.startswith(f"{name}_constant_"))
        self._constants = {f"c{k}": data[key] for k, key in enumerate(keys)}

    def __call__(self, *arguments):
        if self._missing is not None:
            raise ValueError(
                f"the {self._what} uses the primitive {self._missing}, which this "
                f"reader lacks; evaluate it yourself and use correct(values, t)"
            )
        values = dict(self._constants)
        values |= {f"x{k}": a for k, a in enumerate(arguments)}
        with np.errstate(all="ignore"):
            for k, operation in enumerate(self._operations):
                inputs = [values[name] for name in operation["in"]]
                values[f"v{k}"] = _RULES[operation["op"]](operation, *inputs)
        return values[self._result]


def _dot_general(operation, a, b):
    (a_sum, b_sum), (a_batch, b_batch) = operation["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left, right = [None] * a.ndim, [None] * b.ndim
    batch = []
    for i, j in zip(a_batch, b_batch, strict=True):
        left[i] = right[j] = next(letters)
        batch.append(left[i])
    for i, j in zip(a_sum, b_sum, strict=True):
        left[i] = right[j] = next(letters)
    a_free = [i for i in range(a.ndim) if left[i] is None]
    b_free = [j for j in range(b.ndim) if right[j] is None]
    for i in a_free:
        left[i] = next(letters)
    for j in b_free:
        right[j] = next(letters)
    out = batch + [left[i] for i in a_free] + [right[j] for j in b_free]
    formula = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    return np.einsum(formula, a, b, optimize=True)


def _broadcast(operation, a, *_):
    shape = [1] * len(operation["shape"])
    for i, axis in enumerate(operation["broadcast_dimensions"]):
        shape[axis] = a.shape[i]
    return np.broadcast_to(np.reshape(a, shape), operation["shape"])


def _slice(operation, a):
    strides = operation["strides"] or [1] * a.ndim
    bounds = zip(
        operation["start_indices"], operation["limit_indices"], strides, strict=True
    )
    return a[tuple(slice(*b) for b in bounds)]


def _iota(operation):
    shape, axis = operation["shape"], operation["dimension"]
    line = np.arange(shape[axis], dtype=operation["dtype"])
    column = line.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(column, shape)


def _select(operation, which, *cases):
    return np.choose(which.astype(int), cases)


def _simple(function):
    return lambda operation, *inputs: function(*inputs)


_RULES = {
    "rsqrt": _simple(lambda a: 1.0 / np.sqrt(a)),
    "logistic": _simple(lambda a: 1.0 / (1.0 + np.exp(-a))),
    "erf": _simple(np.vectorize(math.erf, otypes=[float])),
    "copy": _simple(np.asarray),
    "copy_p": _simple(np.asarray),
    "clamp": _simple(lambda low, a, high: np.minimum(np.maximum(a, low), high)),
    "select_n": _select,
    "integer_pow": lambda o, a: np.power(a, float(o["y"])),
    "broadcast_in_dim": _broadcast,
    "reshape": lambda o, a: np.reshape(a, o["new_sizes"]),
    "squeeze": lambda o, a: np.squeeze(a, tuple(o["dimensions"])),
    "transpose": lambda o, a: np.transpose(a, o["permutation"]),
    "concatenate": lambda o, *a: np.concatenate(a, o["dimension"]),
    "slice": _slice,
    "dot_general": _dot_general,
    "convert_element_type": lambda o, a: np.asarray(a).astype(o["new_dtype"]),
    "reduce_sum": lambda o, a: np.sum(a, tuple(o["axes"])),
    "reduce_max": lambda o, a: np.max(a, tuple(o["axes"])),
    "reduce_min": lambda o, a: np.min(a, tuple(o["axes"])),
    "reduce_prod": lambda o, a: np.prod(a, tuple(o["axes"])),
    "iota": _iota,
}
_SAME_NAME = (
    "sin cos tan sinh cosh tanh exp exp2 log log1p expm1 sqrt cbrt abs sign floor ceil "
    "square"
)
_OTHER_NAME = {
    "neg": "negative", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "round": "rint", "not": "logical_not", "is_finite": "isfinite", "add": "add",
    "add_any": "add", "sub": "subtract", "mul": "multiply", "div": "divide",
    "max": "maximum", "min": "minimum", "pow": "power", "rem": "fmod",
    "atan2": "arctan2", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "and": "logical_and",
    "or": "logical_or",
}  # fmt: skip
_OTHER_NAME |= {name: name for name in _SAME_NAME.split()}
_RULES |= {name: _simple(getattr(np, other)) for name, other in _OTHER_NAME.items()}
