"""The markup of a page: its templates, and its scripts and style sheets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from kilowait.errors import MissingExtraError
from kilowait.report.data import predictions
from kilowait.report.format import capital
from kilowait.units import format_duration

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kilowait.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_joined,
    )
    environment.filters |= {
        "capital": lambda text: capital(str(text)),
        "duration": format_duration,
        "factor": predictions.factor,
        "json_text": _json_text,
    }
    return environment


def render(template: str, **context: Any) -> str:
    """The HTML of a template."""
    return markup(_environment().get_template(template).render(**context))


def render_part(name: str, *args: Any) -> str:
    """The HTML of a building block, such as a table or a chart, from its plain data; see `templates/parts.html`."""
    part = getattr(_environment().get_template("parts.html").module, name)
    return markup(part(*args))


def markup(text: str) -> str:
    """Text that is HTML already."""
    from markupsafe import Markup

    return Markup(text)


def _joined(value: Any) -> Any:
    """Join per cent signs of a text to their number by a no-break space."""
    return value.replace(" %", "\N{NO-BREAK SPACE}%") if type(value) is str else value


def _json_text(value: Any) -> str:
    """JSON for a script element, escaped so that it cannot end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return markup(text.replace("<", "\\u003c"))


def assets(names: Iterable[str], separator: str = "") -> str:
    """The joined text of scripts or style sheets."""
    folder = files("kilowait.report").joinpath("assets")
    return markup(separator.join(folder.joinpath(name).read_text(encoding="utf-8") for name in names))
