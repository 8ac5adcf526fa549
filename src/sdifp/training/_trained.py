"""What comes out of a training, or out of one that fails."""

import dataclasses
from typing import Any

from ..field import Certificate
from ._metrics import Metrics


@dataclasses.dataclass(frozen=True)
class Trained:
    """What comes out of a training."""

    field: Any
    "a function of one point and one time; a `ConservedField` where integrals hold"
    net: Any
    "the raw network with its initial data, before any correction"
    parameters: Any
    "the network alone, of the last window: begin another training from it"
    certificate: Certificate | None
    "what holds of the integrals; None for methods that correct nothing"
    metrics: Metrics
    "of the whole duration"


class TrainingDiverged(ArithmeticError):
    """The loss is no longer finite or has grown ten thousandfold, or the targets cannot
    be met. `trained` is the last good state."""

    def __init__(self, message: str, trained: Trained):
        super().__init__(message)
        self.trained = trained
