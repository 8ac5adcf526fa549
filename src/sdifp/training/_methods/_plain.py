"""The plain physics-informed network."""

from ._method import RawTraining, no_rows, uncorrected


class Plain(RawTraining):
    """The network as it is: its integrals are not prescribed."""

    needs_targets = False
    multiplier_rate = 0.0
    trained_field = uncorrected
    rows = no_rows
