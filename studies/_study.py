"""What a study is, and how its rows are looked up. Depends on nothing here."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Case = dict[str, Any]
"what is varied, by name"
Value = float | list[float] | None
"a number, or a curve"
Row = dict[str, Any]

Setting = Literal["tiny", "quick", "full"]
"how large: to see that it runs, in minutes, as in the paper"

CONFIRMED = "confirmed"
CONDITION = "confirmed with a condition"
NOT = "not confirmed"


class Claim(NamedTuple):
    """What the paper says, and what the rows say to it."""

    text: str
    verdict: str
    because: str


class Rows(Sequence[Row]):
    """The rows of one study."""

    def __init__(self, rows: Sequence[Row]):
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, k: Any) -> Any:
        return self._rows[k]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def where(self, quantity: str | None = None, **case: Any) -> "Rows":
        """Those of a quantity whose case has these values."""
        return Rows(
            [
                row
                for row in self._rows
                if quantity in (None, row["quantity"])
                and all(row["case"].get(k) == v for k, v in case.items())
            ]
        )

    def known(self, name: str) -> list[Any]:
        """The values of a part of the case, in the order measured."""
        return list(
            dict.fromkeys(
                row["case"][name] for row in self._rows if name in row["case"]
            )
        )

    def values(self, quantity: str, **case: Any) -> list[Any]:
        """What was measured, without cases that gave no number."""
        found = self.where(quantity, **case)
        return [row["measured"] for row in found if row["measured"] is not None]

    def one(self, quantity: str, **case: Any) -> Any:
        """What was measured in the first such case; None if nothing was."""
        found = self.values(quantity, **case)
        return found[0] if found else None

    def line(self, by: str, quantity: str, **case: Any) -> tuple[list[Any], list[Any]]:
        """A part of the case and what was measured there."""
        found = [
            (row["case"][by], row["measured"])
            for row in self.where(quantity, **case)
            if row["measured"] is not None
        ]
        return [x for x, _ in found], [y for _, y in found]


@dataclasses.dataclass(frozen=True)
class Study:
    """One question, its cases, how to measure one of them, and what to show."""

    name: str
    "that of its file, with hyphens"
    title: str
    text: str
    "what is measured, and how; where the paper does not say, what we chose"
    cases: Callable[[Setting], list[Case]]
    measure: Callable[..., dict[str, Value]]
    "of a case, a seed and a setting; with `checkpoints` also of a file"
    columns: Mapping[str, str]
    "the quantities of the table, with their titles"
    labels: tuple[str, ...] = ()
    "the tables and figures of the paper that it repeats"
    draw: "Callable[[Rows], Figure | dict[str, Figure]] | None" = None
    "one figure, or several by the names of their files"
    alt: str = ""
    "what the figure shows, in words"
    claims: Callable[[Rows], list[Claim]] = lambda rows: []
    paper: Callable[[Case], dict[str, float]] = lambda case: {}
    "the published values of a case"
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    "why a quantity differs from what was published"
    seeds: Mapping[Setting, int] = dataclasses.field(
        default_factory=lambda: {"tiny": 1, "quick": 3, "full": 3}
    )
    once: Callable[[Case], bool] = lambda case: False
    "cases for which one seed is enough"
    float64: Callable[[Case], bool] = lambda case: True
    "whether a case is measured in double precision"
    seconds: float = 1.0
    "of one measurement in the quick setting, roughly: for the time left"
    alone: Callable[[Case], bool] = lambda case: False
    "whether times are measured, so that nothing may run beside a case"
    checkpoints: bool = False
    "whether a measurement keeps a file to go on from, which is removed at its end"
    source: str | None = None
    "another study whose measurements are drawn"
    needs: tuple[str, str] | None = None
    "a module that it needs, and how to install it"
