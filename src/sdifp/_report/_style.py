"""How pictures look: colours that can be told apart without red and green."""

import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
CYCLE = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "#000000")
STYLES: tuple[str, ...] = ("-", "--", ":", "-.")
FIELD, DIFFERENCE = "viridis", "PuOr"
# What is zero is drawn here on logarithmic axes.
ZERO = 1e-17
DPI = 150
# Characters that fit above a panel.
_TITLE = 44


def new_figure(width: float, height: float) -> Figure:
    """A figure that needs no display."""
    return Figure((width, height), layout="constrained", dpi=DPI)


def plain(axes: Axes, title: str, x: str, y: str = "") -> None:
    """Title and labels, and no more lines than needed."""
    # Names of the user's are no mathematics.
    parts = [textwrap.fill(part, _TITLE) for part in title.split("\n")]
    lines = "\n".join(parts).replace("$", r"\$")
    axes.set_title(lines, fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    if x == "step":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(which="both", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
