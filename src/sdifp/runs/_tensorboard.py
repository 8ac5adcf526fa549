"""Metrics for TensorBoard, beside metrics.jsonl."""

from pathlib import Path
from typing import Any

from .._training import Metrics, Training

_NAMES = ("loss", "l2_error", "mass_error", "energy_error")


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
        values = {n: getattr(metrics, n) for n in _NAMES}
        if metrics.scale is not None:
            values |= {"scale/least": metrics.scale[0], "scale/most": metrics.scale[1]}
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step=metrics.step)
        self._writer.flush()

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: Any) -> None:
        self._writer.close()
