"""Equations with known solutions, one per file; each function returns a `Problem`."""

from ._advection import advection as advection
from ._check import fingerprint as fingerprint
from ._fokker_planck import fokker_planck as fokker_planck
from ._heat_dirichlet import heat_dirichlet as heat_dirichlet
from ._kdv import kdv as kdv
from ._manufactured import manufactured as manufactured
from ._problem import DEFAULT_NAME as DEFAULT_NAME
from ._problem import Condition as Condition
from ._problem import Dirichlet as Dirichlet
from ._problem import Free as Free
from ._problem import Initial as Initial
from ._problem import Neumann as Neumann
from ._problem import Problem as Problem
from ._reaction_diffusion import reaction_diffusion as reaction_diffusion
from ._wave import wave as wave

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "Condition", "Dirichlet", "Free", "Initial", "Neumann", "Problem", "advection",
    "fokker_planck", "heat_dirichlet", "kdv", "manufactured", "reaction_diffusion",
    "wave",
]
# fmt: on
