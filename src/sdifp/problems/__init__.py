"""Equations with known solutions, one per file; each function returns a `Problem`."""

from ._advection import advection as advection
from ._allen_cahn import allen_cahn as allen_cahn
from ._cahn_hilliard import cahn_hilliard as cahn_hilliard
from ._check import fingerprint as fingerprint
from ._components import in_numbers as in_numbers
from ._conditions import Condition as Condition
from ._conditions import Dirichlet as Dirichlet
from ._conditions import Free as Free
from ._conditions import Initial as Initial
from ._conditions import Neumann as Neumann
from ._cubic_schroedinger import cubic_schroedinger as cubic_schroedinger
from ._double_well import double_well as double_well
from ._droplet import droplet as droplet
from ._fokker_planck import fokker_planck as fokker_planck
from ._fokker_planck_eigen import fokker_planck_eigen as fokker_planck_eigen
from ._fredholm import fredholm as fredholm
from ._gross_pitaevskii import gross_pitaevskii as gross_pitaevskii
from ._heat_dirichlet import heat_dirichlet as heat_dirichlet
from ._kdv import kdv as kdv
from ._linear_schroedinger import linear_schroedinger as linear_schroedinger
from ._manufactured import manufactured as manufactured
from ._maxwell import maxwell as maxwell
from ._mean_field import mean_field as mean_field
from ._neumann_poisson import neumann_poisson as neumann_poisson
from ._nonlinear_schroedinger import nonlinear_schroedinger as nonlinear_schroedinger
from ._nonlinear_schroedinger_soliton import (
    nonlinear_schroedinger_soliton as nonlinear_schroedinger_soliton,
)
from ._oscillator import oscillator as oscillator
from ._oscillator import oscillator_states as oscillator_states
from ._problem import DEFAULT_NAME as DEFAULT_NAME
from ._problem import Problem as Problem
from ._reaction_diffusion import reaction_diffusion as reaction_diffusion
from ._reaction_diffusion_pair import reaction_diffusion_pair as reaction_diffusion_pair
from ._ring import ring as ring
from ._shallow_water import shallow_water as shallow_water
from ._taylor_green import taylor_green as taylor_green
from ._torus import torus_density as torus_density
from ._wave import wave as wave
from ._wave_system import wave_system as wave_system

# What users find here; the other names are for the rest of the library.
# fmt: off
__all__ = [
    "Condition", "Dirichlet", "Free", "Initial", "Neumann", "Problem", "advection",
    "allen_cahn", "cahn_hilliard", "cubic_schroedinger", "double_well", "droplet",
    "fokker_planck", "fokker_planck_eigen", "fredholm", "gross_pitaevskii",
    "heat_dirichlet", "kdv", "linear_schroedinger", "manufactured", "maxwell",
    "mean_field", "neumann_poisson", "nonlinear_schroedinger",
    "nonlinear_schroedinger_soliton", "oscillator", "oscillator_states",
    "reaction_diffusion", "reaction_diffusion_pair", "ring", "shallow_water",
    "taylor_green", "torus_density", "wave", "wave_system",
]
# fmt: on
