"""What the words of a report mean, each explained where it is used first."""

import re

from .._folder import Saved
from ._values import (
    density_in_words,
    functional_value,
    in_words,
    is_steady,
    l2_errors,
    measured,
    prescribed,
)

# Invariants that are more than these are explained by the titles of their pictures.
_MOST_INVARIANTS = 4

METHODS = {
    "SDIFP": (
        "SDIFP (Stochastic Dimension Implicit Functional Projections) trains the "
        "network through its correction: in every step the corrected field has the "
        "prescribed integrals on a quadrature rule, and it is this field that is "
        "trained to solve the equation."
    ),
    "Plain": "Plain trains the network alone; its integrals are not prescribed.",
    "PostHoc": (
        "PostHoc trains the network alone and corrects it after the training "
        "(post-hoc), so that it has the prescribed integrals on a quadrature rule."
    ),
    "PinAndRescale": (
        "PinAndRescale holds the value at one point while it trains the network, and "
        "multiplies it afterwards by the number that gives it the prescribed integral."
    ),
    "Soft": (
        "Soft trains the network alone, with a penalty on the squared errors of the "
        "prescribed integrals, which then hold approximately."
    ),
    "AugmentedLagrangian": (
        "AugmentedLagrangian trains the network alone, with a penalty on the errors of "
        "the prescribed integrals and Lagrange multipliers that grow with these "
        "errors; the integrals then hold approximately."
    ),
    "GridProjection": (
        "GridProjection trains the network through a correction on a fixed uniform "
        "grid with equal weights, the projection of PINN-proj; the prescribed "
        "integrals hold on that grid."
    ),
}
"""One sentence for each method."""

_TERMS = {
    "on the rule": (
        "computed with the quadrature rule, the nodes and weights with which the "
        "correction prescribes the integrals"
    ),
    "continuum": (
        "the exact integral over the domain, estimated with randomised quadrature "
        "rules and given with a 95 % confidence interval"
    ),
    "independent rule": (
        "a quadrature rule with other nodes, which neither the training nor the "
        "correction uses"
    ),
    "raw network": "the network before any correction",
    "target": "the value that the problem gives for an integral",
    "drift": "the change since the first time",
    "scale": (
        "the factor by which the correction multiplies the raw network, as in "
        "u = scale * f + shift; 1 changes nothing"
    ),
    "shift": "what the correction adds to the raw network; 0 changes nothing",
    "window": "the part of the time interval that is trained at a time",
    "status": (
        "the outcome of the correction; with regular and constant, the targets hold "
        "on the rule"
    ),
}

_FUNCTIONAL = (
    "the functional that the training minimises, with an interval of 95 % from "
    "independent randomisations of a quadrature rule, which covers the error of the "
    "quadrature only"
)


def _definition(saved: Saved, name: str) -> str:
    """An invariant as an integral, of a density that is explained."""
    words = density_in_words(saved, name)
    if not words.endswith(" F"):
        return words
    return f"{words}, the density that the problem gives for it"


class Glossary:
    """The terms of a report that have not been explained yet."""

    def __init__(self, saved: Saved):
        where = "the domain" if is_steady(saved) else "space and time"
        own = [*prescribed(saved), *measured(saved)]
        if len(own) > _MOST_INVARIANTS:
            own = []
        functional = functional_value(saved)
        known = {} if functional is None else {in_words(functional[0]): _FUNCTIONAL}
        least = "the mean square of the residual of the equation"
        if functional is not None:
            least = f"the {in_words(functional[0])}"
        size = "the root mean square"
        if l2_errors(saved):
            size = f"of all components together, unless one is named: {size}"
        self._left = {
            **known,
            **{in_words(name): _definition(saved, name) for name in own},
            "relative L2 error": (
                f"{size} of u - reference over {where}, divided by that "
                f"of the reference, the known solution"
            ),
            "loss": f"what the training minimises: {least}, and what the method adds",
            **_TERMS,
        }

    def explain(self, *texts: str) -> list[tuple[str, str]]:
        """The terms in some texts that have not been used before, each with what it
        means, in the order of the texts; then those that explain these."""
        text = " ".join(texts)
        found = {}
        for term in self._left:
            first = re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text, re.I)
            if first:
                found[term] = first.start()
        order = sorted(found, key=lambda term: found[term])
        known = [(term, self._left.pop(term)) for term in order]
        return known + self.explain(*(means for _, means in known)) if known else []
