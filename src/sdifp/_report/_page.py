"""report.html: one page that needs nothing but itself."""

import base64
import dataclasses
import io
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from .._config import Config
from .._folder import Saved
from ._figures import groups, worst_error
from ._style import DPI


def write_report(folder: str | Path) -> Path:
    """Draw the report of a run from what it saved; returns the page."""
    saved = Saved.read(folder)
    figures = saved.folder / "figures"
    figures.mkdir(exist_ok=True)
    for old in figures.glob("*.png"):
        old.unlink()
    shown = []
    for group in groups(saved):
        images = []
        for picture in group.pictures:
            buffer = io.BytesIO()
            picture.figure.savefig(buffer, format="png", dpi=DPI)
            (figures / f"{picture.name}.png").write_bytes(buffer.getvalue())
            code = base64.b64encode(buffer.getvalue()).decode()
            images.append({"alt": picture.alt, "code": code})
        shown.append({"caption": group.caption, "images": images})
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files(__package__).joinpath("report.html").read_text()
    text = environment.from_string(source).render(
        title=f"{saved.result['problem']}, {saved.result['method']}",
        verdict=verdict(saved),
        good=is_good(saved),
        figures=_key_figures(saved),
        groups=shown,
        certificate=saved.certificate,
        rows=_some_rows(saved),
        config=_settings(saved.config),
        command=repeat_command(saved),
        result=saved.result,
    )
    page = saved.folder / "report.html"
    page.write_text(text)
    return page


def is_good(saved: Saved) -> bool:
    """Whether the run is finished and its integrals hold on the rule."""
    certified = saved.certificate is not None and saved.certificate["holds"]
    return bool(saved.result["finished"] and certified)


def verdict(saved: Saved) -> str:
    """What came out of the run, in one sentence."""
    result, metrics = saved.result, saved.result["metrics"]
    parts = []
    if not result["finished"]:
        parts.append(f"not finished, step {metrics['step']} of {metrics['steps']}")
    if saved.certificate is not None:
        parts.append(saved.certificate["verdict"].replace("+-", "±"))
    else:
        drifts = [
            f"{name} is off by up to {error:.1e}"
            for name in ("mass", "energy")
            if (error := worst_error(saved, name)) is not None
        ]
        parts.append(
            "nothing is prescribed"
            + (f": the {' and the '.join(drifts)}" if drifts else "")
        )
    if metrics["l2_error"] is not None:
        parts.append(f"the relative L2 error is {metrics['l2_error']:.1e}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _key_figures(saved: Saved) -> list[tuple[str, str]]:
    metrics = saved.result["metrics"]
    show = lambda v: "" if v is None else f"{v:.1e}"
    found = [
        ("relative L2 error", show(metrics["l2_error"])),
        ("mass, independent rule", show(worst_error(saved, "mass"))),
        ("energy, independent rule", show(worst_error(saved, "energy"))),
        ("steps", f"{metrics['step']} of {metrics['steps']}"),
        ("time in steps", f"{metrics['seconds']:.0f} s"),
    ]
    if metrics["scale"] is not None:
        low, high = metrics["scale"]
        found.append(("scale", f"{low:.4g} to {high:.4g}"))
    return [(name, value) for name, value in found if value]


def _some_rows(saved: Saved) -> list[dict[str, Any]]:
    """The rows of the certificate at about five times, and the worst of all."""
    if saved.certificate is None:
        return []
    rows = saved.certificate["rows"]
    times = sorted({r["time"] for r in rows})
    few = times[:: max(1, (len(times) - 1) // 4)]
    size = lambda r: abs(r["continuum"] or 0.0) + (r["continuum_margin"] or 0.0)
    worst = max(rows, key=size)
    return [r | {"worst": r is worst} for r in rows if r["time"] in few or r is worst]


def _settings(config: Config) -> list[tuple[str, str]]:
    return [
        (f.name, str(getattr(config, f.name)))
        for f in dataclasses.fields(config)
        if getattr(config, f.name) is not None
    ]


def repeat_command(saved: Saved) -> str:
    """The command that does the same again."""
    config = saved.folder / "config.toml"
    return f"sdifp train --config {config} --out {saved.folder}-again"
