"""Every table and figure of the paper, measured: one experiment a file.

An experiment is three steps: measure one case, sweep over the cases that are not
measured yet, draw from what was saved."""

from ._data import read_rows as read_rows
from ._draw import draw as draw
from ._experiment import Case as Case
from ._experiment import Experiment as Experiment
from ._names import EXPERIMENTS as EXPERIMENTS
from ._names import load_experiment as load_experiment
from ._page import write_page as write_page
from ._sweep import Failure as Failure
from ._sweep import Task as Task
from ._sweep import is_complete as is_complete
from ._sweep import sweep as sweep
from ._sweep import tasks_for as tasks_for
