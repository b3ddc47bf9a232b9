"""A declared pipeline application: which queues it reads, its rules, its patterns, and where complex events
go. YAML; see `applications/`.

| key | takes |
|---|---|
| name | a name: lower-case letter, then letters, digits, - (40 at most) |
| queues | list of pipeline queues |
| lateness_seconds | how late an event may come (5) |
| rules | list of rules, in order |
| patterns | list of patterns |
| sink | queue that complex events are published to |

A rule has a name and one of
`discard` or `keep`: a condition in Spark SQL;
`project`: {compute: {column: Spark SQL}, drop: [column]};
`enrich`: {table: CSV file beside this one, using: column of the event, by: column of the table (`subnet`:
by address), columns: [what it adds]}.

A pattern has name, pattern `SEQ(A; B)`, define {symbol: condition} (a symbol not defined is an event type),
key (column), within_seconds, quiet_seconds (0), emits (type of the complex event; the name), severity
(warning).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from queues.errors import BadInput
from workers.pipeline.controls import Controls
from workers.pipeline.pattern import Pattern, definitions, expression_of, steps_of
from workers.pipeline.reference import read_reference
from workers.pipeline.rules import Enrich, Filter, Project, Rule

NAME = re.compile(r"\A[a-z][a-z0-9-]{0,39}\Z")
QUEUE = re.compile(r"\A[a-z][a-z0-9_-]{0,39}\Z")
SEVERITIES = ("info", "warning", "critical")


@dataclass(frozen=True)
class Application:
    """A declared application, read and checked (but for its SQL, which Spark checks: `rules.check_rules`)."""

    name: str
    queues: tuple[str, ...]
    controls: Controls
    rules: tuple[Rule, ...]
    patterns: tuple[Pattern, ...]
    sink: str

    @property
    def routes(self) -> tuple[str, ...]:
        """The key columns of its patterns: the ways rows are brought together."""
        return tuple(dict.fromkeys(pattern.key for pattern in self.patterns))

    @property
    def columns(self) -> frozenset[str]:
        """What its patterns read."""
        return frozenset().union(*(pattern.columns for pattern in self.patterns))


def read_application(path: Path) -> Application:
    """Reads a declaration and its reference tables. Raises BadInput naming the field."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("application", f"{path} can't be read: {error}") from None
    except yaml.YAMLError as error:
        raise BadInput("application", f"{path.name} is not YAML: {' '.join(str(error).split())}") from None
    return application_of(document, path.parent)


def application_of(document: Any, folder: Path) -> Application:
    """The application of a YAML document; tables are looked for in `folder`."""
    keys = ("name", "queues", "lateness_seconds", "rules", "patterns", "sink")
    _mapping(document, "application", keys, required=("name", "queues", "patterns", "sink"))
    queues = _list(document["queues"], "queues")
    for place, queue in enumerate(queues):
        _name(queue, f"queues[{place}]", QUEUE)
    rules = [
        _rule(rule, place, folder) for place, rule in enumerate(_list(document.get("rules", []), "rules", 0))
    ]
    patterns = [_pattern(item, place) for place, item in enumerate(_list(document["patterns"], "patterns"))]
    _distinct([rule.name for rule in rules], "rules")
    _distinct([pattern.name for pattern in patterns], "patterns")
    _distinct(queues, "queues")
    sink = _name(document["sink"], "sink", QUEUE)
    if sink in queues:
        raise BadInput("sink", f"{sink} is also read: its own complex events would come back for ever")
    lateness_seconds = _seconds(document.get("lateness_seconds", 5.0), "lateness_seconds")
    return Application(
        _name(document["name"], "name", NAME),
        tuple(queues),
        Controls(lateness_seconds=lateness_seconds),
        tuple(rules),
        tuple(patterns),
        sink,
    )


def _rule(document: Any, place: int, folder: Path) -> Rule:
    where = f"rules[{place}]"
    _mapping(document, where, ("name", "discard", "keep", "project", "enrich"), required=("name",))
    name = _text(document["name"], f"{where}.name")
    kinds = [key for key in document if key != "name"]
    if len(kinds) != 1:
        raise BadInput(
            where, f"takes one of discard, keep, project, enrich; it has {', '.join(kinds) or 'none'}"
        )
    kind, value = kinds[0], document[kinds[0]]
    if kind in ("discard", "keep"):
        return Filter(name, _text(value, f"{where}.{kind}"), kind == "discard")
    if kind == "project":
        return _project(name, value, f"{where}.project")
    return _enrich(name, value, f"{where}.enrich", folder)


def _project(name: str, document: Any, where: str) -> Project:
    _mapping(document, where, ("compute", "drop"), required=())
    compute = document.get("compute", {})
    if not isinstance(compute, dict):
        raise BadInput(f"{where}.compute", "takes column: expression pairs")
    for column, text in compute.items():
        _name(column, f"{where}.compute", re.compile(r"\A[A-Za-z]\w*\Z"))
        _text(text, f"{where}.compute.{column}")
    drop = [_text(column, f"{where}.drop") for column in _list(document.get("drop", []), f"{where}.drop", 0)]
    return Project(name, compute, tuple(drop))


def _enrich(name: str, document: Any, where: str, folder: Path) -> Enrich:
    _mapping(
        document, where, ("table", "using", "by", "columns"), required=("table", "using", "by", "columns")
    )
    columns = [_text(column, f"{where}.columns") for column in _list(document["columns"], f"{where}.columns")]
    path = folder / _text(document["table"], f"{where}.table")
    by = _text(document["by"], f"{where}.by")
    reference = read_reference(path, by, tuple(columns), f"{where}.table")
    return Enrich(name, _text(document["using"], f"{where}.using"), reference)


def _pattern(document: Any, place: int) -> Pattern:
    where = f"patterns[{place}]"
    keys = (
        "name",
        "pattern",
        "define",
        "key",
        "within_seconds",
        "quiet_seconds",
        "emits",
        "severity",
    )
    _mapping(document, where, keys, required=("name", "pattern", "key", "within_seconds"))
    name = _name(document["name"], f"{where}.name", NAME)
    expression = expression_of(document["pattern"], f"{where}.pattern")
    if steps_of(expression) is None:
        raise BadInput(f"{where}.pattern", "takes SEQ(A; B; …) of single symbols")
    define = document.get("define", {})
    if not isinstance(define, dict):
        raise BadInput(f"{where}.define", "takes symbol: condition pairs")
    severity = document.get("severity", "warning")
    if severity not in SEVERITIES:
        raise BadInput(f"{where}.severity", f"takes one of {', '.join(SEVERITIES)}, not {severity!r}")
    return Pattern(
        name=name,
        expression=expression,
        defines=definitions(expression, define, f"{where}.define"),
        key=_text(document["key"], f"{where}.key"),
        within_us=_microseconds(document["within_seconds"], f"{where}.within_seconds"),
        quiet_us=_microseconds(document.get("quiet_seconds", 0), f"{where}.quiet_seconds"),
        emits=_text(document.get("emits", name), f"{where}.emits"),
        severity=severity,
    )


def _mapping(document: Any, where: str, keys: tuple[str, ...], required: tuple[str, ...]) -> None:
    if not isinstance(document, Mapping):
        raise BadInput(where, f"takes {', '.join(keys)}")
    for key in document:
        if key not in keys:
            raise BadInput(f"{where}.{key}", f"is not known; known are {', '.join(keys)}")
    for key in required:
        if key not in document:
            raise BadInput(f"{where}.{key}", "is missing")


def _list(value: Any, where: str, least: int = 1) -> list:
    if not isinstance(value, list) or len(value) < least:
        raise BadInput(where, "takes a list" + (" of at least one" if least else ""))
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(where, f"takes a text, not {value!r}")
    return value


def _name(value: Any, where: str, form: re.Pattern) -> str:
    if not isinstance(value, str) or not form.match(value):
        raise BadInput(where, f"takes a name (a lower-case letter, then letters, digits or -), not {value!r}")
    return value


def _seconds(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 86_400:
        raise BadInput(where, f"takes seconds from 0 to 86400, not {value!r}")
    return float(value)


def _microseconds(value: Any, where: str) -> int:
    return round(_seconds(value, where) * 1_000_000)


def _distinct(names: list[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise BadInput(where, f"{name!r} is given twice")
