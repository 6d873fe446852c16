"""Commands from functions: the options of a command are the fields of the settings dataclasses that it fills.

A field with an `Option` annotation becomes an option with the default of the field, so that the command line has no
defaults of its own. The other parameters of the function with such an annotation become options too.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer

from kilowait.errors import InputError
from kilowait.settings import NO_VALUE, Argument, Option

LOG_FORMAT = "columns format unpack_limit strict"
"""The options of a log's format, in the order of the help."""
SIGNALS = "carbon price carbon_scope cooling utilization forecast log_start repeat_signals"
"""The options of the signals of energy accounting, without the weather."""

Workers = Annotated[
    int | None,
    Option("N", "Number of worker processes. By default it depends on the amount of work.", min=1, max=4096),
]  # fmt: skip
Json = Annotated[bool, Option(None, "Print one JSON document and nothing else.")]
Out = Annotated[Path | None, Option("DIR", "Write a folder with the complete results.", "-o")]
Csv = Annotated[
    bool, Option(None, "With --out: also write the per-job records as records.csv: start, end, wait, outcome.")
]
Force = Annotated[bool, Option(None, "Replace the folder if an earlier run wrote it.")]

COOLING_WITHOUT_WEATHER = Option(
    "COOLING",
    "Cooling model to use instead of that of the power model: pue:X or supply-air (models that need weather data are "
    "available in kilowait simulate and compare).",
)
"""The option of the cooling model for commands without ``--weather``."""

Verb = TypeVar("Verb", bound=Callable[..., None])


def check_csv(csv: bool, out: Path | None) -> None:
    """Raise an InputError if records are to be written as CSV, but no folder is named."""
    if csv and out is None:
        raise InputError("--csv writes records.csv into the folder of results; name the folder with --out")


@dataclass(frozen=True)
class _Parameter:
    """An option or argument of a command; `option` is None if typer knows the annotation."""

    annotation: Any
    default: Any
    option: Option | None


def verb(
    app: typer.Typer, order: str = "", *, epilog: str, name: str | None = None, **changed: Option
) -> Callable[[Verb], Verb]:
    """Make a function the command `name` of `app`, with options for its parameters.

    A parameter whose type is a settings dataclass stands for the options of its fields, and of the fields of the
    dataclasses within; the function gets the dataclass. A parameter of the type ``Callable[..., Settings]`` is the
    dataclass without the fields that the function sets itself; those have no option, or one of the function's own. If
    a dataclass has a class method `from_options`, it makes the instance.

    Args:
        app: where the command is added.
        order: the names of the options in the order of the help; the name of a parameter or field that is a dataclass
            stands for all its options that are not named. Fields that are not named have no option. Default: all.
        epilog: text after the help.
        name: default: the name of the function.
        changed: options that differ from those of the fields, by name.

    >>> app = typer.Typer()
    >>> @dataclass
    ... class Log:
    ...     load: Annotated[float | None, Option("TARGET", "Offered load.")] = None
    >>> @verb(app, epilog="")
    ... def show(log: Log) -> None:
    ...     print(log.load)
    >>> app(["--load", "0.9"], standalone_mode=False)
    0.9
    """

    def register(function: Verb) -> Verb:
        hints = get_type_hints(function, include_extras=True)
        own = {key: (hints[key], each.default) for key, each in inspect.signature(function).parameters.items()}
        settings = {key: kind for key, (hint, _) in own.items() if (kind := _settings_class(hint)) is not None}
        found: dict[str, _Parameter] = {}
        groups: dict[str, list[str]] = {}
        _collect(own, changed, found, groups)
        known = _in_order(found, groups, order.split()) if order else found

        def run(**values: Any) -> None:
            for key, value in values.items():
                option = known[key].option
                if option is not None and option.parse is not None and value is not None:
                    values[key] = option.parse(value)
            # An option sets one parameter or field: the first one of its name, and one of the function itself at first.
            arguments = {key: values.pop(_key(key, hint)) for key, (hint, _) in own.items() if key not in settings}
            for key, kind in settings.items():
                filled = _filled_fields(kind, values)
                make = getattr(kind, "from_options", kind)
                arguments[key] = partial(kind, **filled) if get_origin(own[key][0]) is Callable else make(**filled)
            function(**arguments)

        parameters = [_typer_parameter(key, parameter) for key, parameter in known.items()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        app.command(name, epilog=epilog)(run)
        return function

    return register


def _collect(
    fields: Mapping[str, tuple[Any, Any]],
    changed: Mapping[str, Option],
    found: dict[str, _Parameter],
    groups: dict[str, list[str]],
) -> None:
    """Add the options of fields (name to type and default) to `found`, and the names in each dataclass to `groups`.

    A field has precedence over those of the same name within dataclasses; among these the first one defines the option.
    """
    for name, (hint, default) in fields.items():
        settings = _settings_class(hint)
        kind, option = _option(hint)
        if settings is not None:
            inner: dict[str, _Parameter] = {}
            _collect(_fields(settings), changed, inner, groups)
            groups[name] = list(inner)
            found |= {key: parameter for key, parameter in inner.items() if key not in found}
        elif option is not None:
            key = option.name or name
            found[key] = _Parameter(kind, default, changed.get(key, option))
        elif kind is typer.Context:
            found[name] = _Parameter(hint, default, None)


def _in_order(found: dict[str, _Parameter], groups: Mapping[str, list[str]], order: list[str]) -> dict[str, _Parameter]:
    """The options that `order` names, in this order."""
    names = [name for name, parameter in found.items() if parameter.option is None]
    for word in order:
        names += [word] if word in found else [key for key in groups[word] if key not in order]
    return {name: found[name] for name in names}


def _filled_fields(settings: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a settings dataclass that options have set; their values are removed from `values`."""
    filled: dict[str, Any] = {}
    for name, (hint, _) in _fields(settings).items():
        inner, key = _settings_class(hint), _key(name, hint)
        if inner is not None:
            inner_fields = _filled_fields(inner, values)
            if inner_fields:
                filled[name] = getattr(inner, "from_options", inner)(**inner_fields)
        elif _option(hint)[1] is not None and key in values:
            filled[name] = values.pop(key)
    return filled


def _settings_class(hint: Any) -> Any:
    """The dataclass in ``Settings``, ``Settings | None`` or ``Callable[..., Settings]``; None: another type."""
    kinds = (hint, *get_args(hint))
    return next((kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)), None)


def _fields(settings: Any) -> dict[str, tuple[Any, Any]]:
    """The types and defaults of the fields of a dataclass by name."""
    hints = get_type_hints(settings, include_extras=True)
    return {
        field.name: (
            hints[field.name],
            inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(settings)
    }


def _option(hint: Any) -> tuple[Any, Option | None]:
    """The type and the option of an annotation."""
    if get_origin(hint) is not Annotated:
        return hint, None
    return hint.__origin__, next((extra for extra in hint.__metadata__ if isinstance(extra, Option)), None)


def _key(name: str, hint: Any) -> str:
    """The name of the option of a field or parameter."""
    _, option = _option(hint)
    return name if option is None else option.name or name


def _typer_parameter(name: str, parameter: _Parameter) -> inspect.Parameter:
    """The parameter that typer makes an option or argument from."""
    kind, default, option = parameter.annotation, parameter.default, parameter.option
    if option is not None:
        default = default if option.default is NO_VALUE else option.default
        if option.text is not None and default is not None and default is not inspect.Parameter.empty:
            default = option.text(default)
        if get_origin(kind) is Literal or (option.parse is not None and kind is not bool):
            kind = str
        if default is None and type(None) not in get_args(kind):
            kind = kind | None
        settings: dict[str, Any] = {
            "metavar": option.metavar,
            "help": option.help,
            "min": option.min,
            "max": option.max,
            "show_default": option.show_default,
        }
        is_argument = isinstance(option, Argument)
        kind = Annotated[
            kind, typer.Argument(**settings) if is_argument else typer.Option(*option.names(name), **settings)
        ]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
