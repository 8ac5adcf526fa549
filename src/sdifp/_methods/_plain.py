"""The plain physics-informed network."""

from ._method import Method


class Plain(Method):
    """The network as it is: nothing holds its integrals."""

    @property
    def needs_targets(self) -> bool:
        return False
