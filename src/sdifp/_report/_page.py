"""report.html: one page that needs nothing but itself."""

import base64
import io
import math
import re
import shlex
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from .._folder import (
    Saved,
    continuum_of,
    measured_in_words,
    shown,
    write_whole,
)
from ._figures import (
    groups,
    in_words,
    measured,
    prescribed,
    worst_drift,
    worst_error,
)
from ._style import DPI


def write_report(folder: str | Path) -> Path:
    """Draw the report of a run from what it saved; returns the page."""
    saved = Saved.read(folder)
    files: dict[str, bytes] = {}
    drawn = []
    for group in groups(saved):
        images = []
        for picture in group.pictures:
            buffer = io.BytesIO()
            picture.figure.savefig(buffer, format="png", dpi=DPI)
            files[_file_name(picture.name, files)] = buffer.getvalue()
            code = base64.b64encode(buffer.getvalue()).decode()
            images.append({"alt": picture.alt, "code": code})
        drawn.append({"caption": group.caption, "images": images})
    own = saved.folder if saved.folder.name else saved.folder.resolve()
    again = ["--config", own / "config.toml", "--out", f"{own}-again"]
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files(__package__).joinpath("report.html").read_text()
    text = environment.from_string(source).render(
        title=f"{saved.result['problem']}, {saved.result['method']}",
        verdict=verdict(saved),
        good=saved.result["finished"] and (saved.certificate or {}).get("holds"),
        figures=_key_figures(saved),
        groups=drawn,
        certificate=saved.certificate,
        rows=_some_rows(saved),
        measured=_measured_rows(saved),
        config=saved.config,
        command=f"sdifp train {shlex.join(map(str, again))}",
        result=saved.result,
    )
    page = saved.folder / "report.html"
    write_whole(page, text.encode())
    figures = saved.folder / "figures"
    figures.mkdir(exist_ok=True)
    for name, data in files.items():
        write_whole(figures / name, data)
    for old in figures.glob("*.png"):
        if old.name not in files:
            old.unlink()
    return page


def _file_name(name: str, taken: Collection[str]) -> str:
    """A file name for a picture: invariants may have any name, that of another picture
    too."""
    stem = re.sub(r"[^\w.-]+", "_", name).lstrip(".")[:80] or "_"
    names = (f"{stem}{end}.png" for end in ("", *(f"-{k}" for k in range(2, 99))))
    return next(name for name in names if name not in taken)


def verdict(saved: Saved) -> str:
    """What came out of the run, in one sentence."""
    result, metrics = saved.result, saved.result["metrics"]
    parts = []
    if not result["finished"]:
        parts.append(
            f"not finished, step {metrics['step']} of {metrics['steps']}, measured "
            f"until t = {result['until']:.4g}"
        )
    if saved.certificate is not None:
        parts.append(saved.certificate["verdict"].replace("+-", "±"))
        # Files of before do not have it.
        if saved.certificate.get("training"):
            parts.append(saved.certificate["training"])
    else:
        drifts = [
            f"{in_words(name)} is off by up to {shown(worst_error(saved, name))}"
            for name in prescribed(saved)
        ]
        parts.append(
            "nothing is prescribed"
            + (f": the {' and the '.join(drifts)}" if drifts else "")
        )
    for name in measured(saved):
        drift = shown(worst_drift(saved, name))
        parts.append(f"the {in_words(name)}, measured only, drifts by up to {drift}")
    if result["has_reference"]:
        parts.append(f"the relative L2 error is {shown(metrics['l2_error'])}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _key_figures(saved: Saved) -> list[tuple[str, str]]:
    result, metrics = saved.result, saved.result["metrics"]
    found = []
    if result["has_reference"]:
        found.append(("relative L2 error", shown(metrics["l2_error"])))
    for name in prescribed(saved):
        text = f"{in_words(name)}, independent rule"
        found.append((text, shown(worst_error(saved, name))))
    for name in measured(saved):
        found.append((f"{in_words(name)}, drift", shown(worst_drift(saved, name))))
    found.append(("steps", f"{metrics['step']} of {metrics['steps']}"))
    found.append(("time, with compilation", f"{metrics['seconds']:.0f} s"))
    if metrics["scale"] is not None:
        scale = ["not finite" if v is None else f"{v:.4g}" for v in metrics["scale"]]
        found.append(("scale", " to ".join(scale)))
    return found


def _some_rows(saved: Saved) -> list[dict[str, Any]]:
    """The rows of the certificate at about five times, and the worst of all."""
    if saved.certificate is None:
        return []
    rows = saved.certificate["rows"]
    few = _some_times(rows)

    def size(row: dict[str, Any]) -> float:
        parts = (row["continuum"], row["continuum_margin"])
        return sum(math.inf if p is None else abs(p) for p in parts)

    worst = max(rows, key=size)
    tolerance = saved.certificate["tolerance"]
    return [
        r
        | {
            "worst": r is worst,
            "interval": continuum_of(r, tolerance).replace("+-", "±"),
        }
        for r in rows
        if r["time"] in few or r is worst
    ]


def _some_times(rows: list[dict[str, Any]]) -> list[float]:
    """About five of the times of some rows."""
    times = sorted({r["time"] for r in rows})
    return times[:: max(1, (len(times) - 1) // 4)]


def _measured_rows(saved: Saved) -> list[dict[str, Any]]:
    """The rows of the certificate of what is measured only, at about five times."""
    # Files of before do not have them.
    rows = (saved.certificate or {}).get("measured", [])
    few = _some_times(rows)
    return [
        {
            "time": f"{r['time']:.4g}",
            "invariant": r["invariant"],
            **measured_in_words(r),
        }
        for r in rows
        if r["time"] in few
    ]
