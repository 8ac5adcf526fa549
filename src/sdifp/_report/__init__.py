"""Pictures and the page of a run, made from saved data only. Needs no JAX."""

from ._compare import compare_rows as compare_rows
from ._compare import draw_comparison as draw_comparison
from ._page import verdict as verdict
from ._page import write_report as write_report
