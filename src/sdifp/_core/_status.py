"""What can become of targets on a field (paper, corollary on moment feasibility)."""

import enum


class Status(enum.IntEnum):
    """The outcome of a correction, from best to worst.

    - `REGULAR`: both targets hold on the rule.
    - `CONSTANT`: the targets leave no freedom (target variance 0): the corrected
        field is the target mean (times the profile). Both targets hold.
    - `FLOORED`: the variance floor acted: the mean holds, the second moment does not.
    - `DEGENERATE`: the raw field has no variance on the rule (it is constant, or a
        multiple of the profile) and the targets ask for some: the mean holds alone.
    - `UNDERFLOW`: the raw field, or the one that is asked for, is so small that its
        square underflows the dtype. The mean holds alone. In a certificate also where
        the variation that is asked for is lost in the rounding of targets or values.
    - `INFEASIBLE`: no field has these moments, or none of the form asked for. The
        mean holds, with the least second moment that is possible.
    - `NOT_FINITE`: a value, a target or a sum is NaN or infinite, or the result
        overflows the dtype of the values. Nothing holds.
    - `UNNORMALISED`: the weights do not sum to 1 (seen by `project` inside `jit`;
        outside it is an error). The moments hold for the weights over their sum.

    Where only the second moment is prescribed, "the mean holds" is void.
    """

    REGULAR = 0
    CONSTANT = 1
    FLOORED = 2
    DEGENERATE = 3
    UNDERFLOW = 4
    INFEASIBLE = 5
    NOT_FINITE = 6
    UNNORMALISED = 7
