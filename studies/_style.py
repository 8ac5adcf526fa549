"""Colours and axes of the figures: those of the library's own reports."""

from sdifp._report._style import BLUE as BLUE
from sdifp._report._style import CYCLE as CYCLE
from sdifp._report._style import GREEN as GREEN
from sdifp._report._style import GREY as GREY
from sdifp._report._style import ORANGE as ORANGE
from sdifp._report._style import RED as RED
from sdifp._report._style import ZERO as ZERO
from sdifp._report._style import new_figure as new_figure
from sdifp._report._style import plain as plain
