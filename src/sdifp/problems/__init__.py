"""Equations with known solutions, one a file; each function returns a `Problem`."""

from ._advection import advection as advection
from ._fokker_planck import fokker_planck as fokker_planck
from ._heat_dirichlet import heat_dirichlet as heat_dirichlet
from ._kdv import kdv as kdv
from ._manufactured import manufactured as manufactured
from ._points import GridPoints as GridPoints
from ._points import Points as Points
from ._points import RandomPoints as RandomPoints
from ._points import check_grid as check_grid
from ._problem import Problem as Problem
from ._reaction_diffusion import reaction_diffusion as reaction_diffusion
from ._recipe import Recipe as Recipe
from ._wave import wave as wave
