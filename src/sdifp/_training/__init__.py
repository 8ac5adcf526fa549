"""The training step, and the loop around it."""

from ._metrics import Metrics as Metrics
from ._train import Trained as Trained
from ._train import Training as Training
from ._train import TrainingDiverged as TrainingDiverged
from ._train import points_at_each_time as points_at_each_time
from ._train import train as train
