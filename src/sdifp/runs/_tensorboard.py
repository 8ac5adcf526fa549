"""Metrics for TensorBoard, beside metrics.jsonl."""

from pathlib import Path
from typing import Any

from ..training import Metrics, Training


class TensorBoard:
    """Writes metrics into the folder `tensorboard` of a run; a `watch` for `Run.train`.
    Needs the extra `sdifp[tensorboard]`."""

    def __init__(self, folder: Path):
        from tensorboard.summary import Writer

        self._writer: Any = Writer(str(folder / "tensorboard"))

    def __call__(self, training: Training, metrics: Metrics | None) -> None:
        """Write new metrics."""
        if metrics is None:
            return
        names = ("loss", "l2_error", "interpolation")
        values = {name: getattr(metrics, name) for name in names}
        values |= {f"errors/{name}": error for name, error in metrics.errors.items()}
        values |= {f"l2_error/{name}": e for name, e in metrics.l2_errors.items()}
        values |= metrics.functional
        for name, one in metrics.measured.items():
            values |= {f"measured/{name}": one.value, f"drift/{name}": one.relative}
        for name, pair in (("scale", metrics.scale), ("shift", metrics.shift)):
            if pair is not None:
                values |= {f"{name}/least": pair[0], f"{name}/most": pair[1]}
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step=metrics.step)
        self._writer.flush()

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: Any) -> None:
        self._writer.close()
