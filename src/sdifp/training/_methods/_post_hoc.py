"""Plain training, corrected afterwards."""

from ._method import RawTraining, corrected, no_rows


class PostHoc(RawTraining):
    """Trained as `Plain`, and corrected afterwards.

    Conserves as well as `SDIFP` at no cost in training: the fair baseline."""

    needs_targets = True
    multiplier_rate = 0.0
    trained_field = corrected
    rows = no_rows
