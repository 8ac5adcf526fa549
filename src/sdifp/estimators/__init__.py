"""Estimators of the gradient of a mean squared residual, and their audit.

An estimator takes all terms of the operator (`Full`) or samples some of them, with or
without bias; `audit` measures bias, noise, time and memory of each on a given problem.
"""

from ._audit import Audit as Audit
from ._audit import AuditRow as AuditRow
from ._audit import audit as audit
from ._estimators import Disjoint as Disjoint
from ._estimators import Estimate as Estimate
from ._estimators import Estimator as Estimator
from ._estimators import Full as Full
from ._estimators import Independent as Independent
from ._estimators import Shared as Shared
from ._estimators import Symmetric as Symmetric
from ._estimators import stde as stde
from ._variance import Variance as Variance
from ._warm_up import WarmUp as WarmUp
