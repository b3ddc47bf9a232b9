"""A declared pipeline application: its queues, rules, operators, and the destinations of complex events.

YAML; see `applications/`.

| key | takes |
|---|---|
| name | a name: lowercase letter, then letters, digits, - (40 at most) |
| queues | list of pipeline queues |
| replicas | number of intra-event replicas (1) |
| latency_seconds | target time from an event to its complex events; determines how long the pipeline gathers events |
| lateness_seconds | how late an event may arrive (5, or 0.4 times latency_seconds) |
| ordered_producers | {queue: [all producers]}, if all of them publish in order: no wait for late events |
| attributes | {name: text, number or boolean, or {type, required}}: attributes that become columns |
| criteria | {name: number}: values that rules refer to as `:name`; can be changed at run time |
| monitor | list of {criterion, column, quantile, window_seconds (300), type}: criteria that follow a quantile
|
| rules | list of rules, in order |
| engine | auto (Arrow if it supports all rules, otherwise Spark) or spark (auto) |
| key | default key column of the patterns: a pattern relates events that have the same key |
| operators | list of {name, key, patterns}; each has one key |
| patterns | list of patterns; each gets an operator of its own |
| types | list of incoming event types (if set, a symbol that no producer emits is rejected) |
| sink | queue that complex events are published to, except those that an operator reads |
| sinks | list of {queue, types}: destinations of further types |

A rule has a name and one of `discard` or `keep`: a condition (`rule_language` lists the SQL that rules may use);
`project`: {compute: {column: expression}, drop: [column]}; `enrich`: {table: name of a CSV file in the same folder,
using: column of the event, by: column of the table (`subnet`: by address), columns: [columns to add]}; the table is
read again when it changes; `sample`: the share of events to keep (selected by event id, so a replay keeps the same
events); `cleanse`: {column: expression of its clean value}; an event is dropped if one of the values is null.

A pattern has name, pattern (`SEQ(A; B+; C)`, `AND(A, B)`, `OR(A, B)`, in the syntax of `match`), define {symbol:
condition} (an undefined symbol is an event type; a condition may refer to events of other symbols, as in
`value > 10 * A.value`), measures {name: expression of a value of the match, which becomes an attribute of the complex
event}, key (column), within_seconds, contiguity (relaxed), consume (once), quiet_seconds (0), emits (type of the
complex event; the name), severity (warning), weight (value of a match for load shedding, 1; the same for all patterns
that emit a type).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import checks
from common.documents import MAX_YAML_CHARACTERS, read_yaml
from common.errors import BadInput, Forbidden
from common.stored_document import replace_fields
from controllers.patterns.expression import Expression
from workers.pipeline.declaration import fields
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.replicas import list_replica_names
from workers.pipeline.events.layout import CARRIED, COLUMNS, NUMBERS, TYPES, Attribute, Layout, MonitoredQuantile
from workers.pipeline.matching.complex_event import ATTRIBUTES
from workers.pipeline.patterns.graph import Graph, Operator, check_symbols
from workers.pipeline.patterns.pattern import (
    CONSUMPTIONS,
    CONTIGUITIES,
    MAX_MEASURES,
    MAX_SYMBOLS,
    Pattern,
    check_states,
    parse_definitions,
    parse_expression,
    parse_measures,
    validate_choice,
)
from workers.pipeline.patterns.predicate import BoundExpression, Predicate
from workers.pipeline.rules.reference import ReferenceTable, get_table_path
from workers.pipeline.rules.rule_language import MAX_CHARACTERS
from workers.pipeline.rules.rules import (
    ENGINES,
    MAX_RULES,
    Cleanse,
    Enrich,
    Filter,
    Project,
    Rule,
    Sample,
    check_expressions,
    check_size,
    describe_missing_column,
    list_named_columns,
    list_named_criteria,
)

SEVERITIES = ("info", "warning", "critical")


LATENESS_SECONDS = 5.0
LATENESS_SHARE_OF_LATENCY = 0.4
MAX_REPLICAS = 16
MAX_QUEUES = 32
MAX_PRODUCERS = 64
MAX_OPERATORS = 32
MAX_PATTERNS = 64
MAX_TYPES = 1_000
MAX_ATTRIBUTES = 64
MAX_CRITERIA = 64
MAX_MONITORED = 32
MAX_WEIGHT = 1e6
_GENERAL_KEYS = (
    "name",
    "queues",
    "replicas",
    "latency_seconds",
    "lateness_seconds",
    "ordered_producers",
    "attributes",
    "criteria",
    "monitor",
    "rules",
)
KEYS = (*_GENERAL_KEYS, "engine", "key", "operators", "patterns", "types", "sink", "sinks")
COLUMN = re.compile(r"\A[A-Za-z]\w{0,63}\Z", re.ASCII)
MAX_EXPRESSIONS = 64
RULES = ("discard", "keep", "project", "enrich", "sample", "cleanse")


@dataclass(frozen=True)
class Application:
    """A declared application, read and validated, except for its SQL.

    Spark checks the SQL (`rules.check_rules`). sinks: type of complex event → the queues that it is published to.
    engine: engine that runs the rules (ENGINES). ordered_producers: queue → its producers, if they publish in order.
    """

    name: str
    queues: tuple[str, ...]
    controls: Controls
    rules: tuple[Rule, ...]
    graph: Graph
    sinks: dict[str, tuple[str, ...]]
    replicas: tuple[str, ...] = ("iap1",)
    attributes: tuple[Attribute, ...] = ()
    monitored: tuple[MonitoredQuantile, ...] = ()
    engine: str = ENGINES[0]
    ordered_producers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        return self.graph.patterns

    @property
    def tables(self) -> tuple[ReferenceTable, ...]:
        """Return the reference tables that the rules read."""
        return tuple(rule.table for rule in self.rules if isinstance(rule, Enrich))

    @property
    def layout(self) -> Layout:
        """Return the columns that the rules and patterns name, and those that every application needs."""
        monitored = {criterion.column for criterion in self.monitored}
        named = list_named_columns(self.rules) | monitored | self.graph.columns | {"time", *CARRIED}
        columns = tuple(name for name in COLUMNS if name in named)
        return Layout(columns, self.attributes, list_named_criteria(self.rules))


def read_application(path: Path) -> Application:
    """Read a declaration and its reference tables. Raises `BadInput` that names the field and its line."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_YAML_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError):
        raise BadInput("application", f"{path.name} can't be read as a text file") from None
    return parse_application_text(text, path.parent, path.name)


def parse_application_text(text: str, folder: Path, name: str = "application") -> Application:
    """Return the application declared by a YAML text. Tables are read from `folder`."""
    document = read_yaml(text, "application")
    try:
        return build_application(document.value, folder)
    except BadInput as error:
        line = document.find_line(error.field)
        raise type(error)(error.field, f"{error.message} ({name}, line {line})") from None


def check_readers(application: Application, other: str, queues: Iterable[str]) -> None:
    """Raise `BadInput` if another application reads one of the queues.

    Processed events are removed from a queue, so two applications can't share it.
    """
    for shared in sorted({*application.queues} & {*queues}):
        said = f"{shared} is already read by {other}. Only one application can read a queue. Choose another."
        raise BadInput("queues", said)


def parse_queues(text: str) -> list[str]:
    """Return the queues that a YAML text reads, even if the rest is invalid. Empty if `queues` is not a list."""
    document = read_yaml(text, "application").value
    queues = document.get("queues") if isinstance(document, dict) else None
    return [queue for queue in queues if isinstance(queue, str)] if isinstance(queues, list) else []


def build_application(document: object, folder: Path) -> Application:
    """Return the application declared by a YAML document. Tables are read from `folder`."""
    document = fields.check_mapping(document, "application", KEYS, required=("name", "queues", "sink"))
    queues = fields.validate_items(document["queues"], "queues", most=MAX_QUEUES)
    for place, queue in enumerate(queues):
        fields.validate_name(queue, f"queues[{place}]", checks.QUEUE_NAME)
    rules = [
        read_rule(rule, f"rules[{place}]", folder)
        for place, rule in enumerate(fields.validate_items(document.get("rules", []), "rules", 0, MAX_RULES))
    ]
    fields.check_distinct_names([rule.name for rule in rules], "rules")
    check_size(rules)
    fields.check_distinct_names(queues, "queues")
    attributes = _parse_attributes(document.get("attributes", {}))
    criteria = fields.validate_pairs(document.get("criteria", {}), "criteria", "name: number", MAX_CRITERIA)
    for name, value in criteria.items():
        fields.validate_name(name, f"criteria.{name}", re.compile(r"\A[a-z][a-z0-9_]*\Z"))
        checks.accept_number().validate(value, f"criteria.{name}")
    columns = check_expressions(rules, [*COLUMNS, *(attribute.name for attribute in attributes)], criteria)
    graph = _build_graph(document)
    _check_pattern_columns(graph, columns, _locate_patterns(document))
    if "types" in document:
        types = fields.validate_items(document["types"], "types", most=MAX_TYPES)
        known = frozenset(fields.validate_text(event_type, "types") for event_type in types)
        check_symbols(graph, known, _locate_patterns(document))
    replicas = checks.accept_whole_number(1, MAX_REPLICAS)
    return Application(
        fields.validate_name(document["name"], "name", checks.PLANT_NAME),
        tuple(queues),
        replace_fields(_parse_latency(document), criteria={name: float(value) for name, value in criteria.items()}),
        tuple(rules),
        graph,
        _parse_sinks(document, graph, queues),
        list_replica_names(replicas.validate(document.get("replicas", 1), "replicas")),
        attributes,
        _parse_monitored(document.get("monitor", []), criteria, attributes),
        checks.accept_choice(ENGINES).validate(document.get("engine", ENGINES[0]), "engine"),
        _parse_producers(document.get("ordered_producers", {}), queues),
    )


def _parse_producers(document: object, queues: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the producers of each queue."""
    named = fields.check_mapping(document, "ordered_producers", tuple(queues), required=())
    if named and (missing := [queue for queue in queues if queue not in named]):
        raise BadInput(
            "ordered_producers",
            f"names no producers of {missing[0]!r}. Add all producers of every queue of the application, or remove"
            " ordered_producers",
        )
    producers: dict[str, tuple[str, ...]] = {}
    for queue, names in named.items():
        where = f"ordered_producers.{queue}"
        listed = fields.validate_items(names, where, most=MAX_PRODUCERS)
        fields.check_distinct_names(distinct := [fields.validate_text(name, where) for name in listed], where)
        producers[queue] = tuple(distinct)
    return producers


def _parse_latency(document: Mapping[str, object]) -> Controls:
    """Return controls with the declared latency and lateness."""
    declared = document.get("latency_seconds")
    latency = None if declared is None else fields.validate_seconds(declared, "latency_seconds")
    default = LATENESS_SECONDS if latency is None else LATENESS_SHARE_OF_LATENCY * latency
    lateness = fields.validate_seconds(document.get("lateness_seconds", default), "lateness_seconds")
    if latency is not None and lateness >= latency:
        raise BadInput(
            "latency_seconds",
            f"must be greater than lateness_seconds ({lateness:g} s), not {latency:g} s: every match waits for late"
            " events",
        )
    return Controls(lateness_seconds=lateness, latency_seconds=latency)


def _parse_monitored(
    document: object, criteria: Mapping[str, float], attributes: tuple[Attribute, ...]
) -> tuple[MonitoredQuantile, ...]:
    numbers = {"value", *(attribute.name for attribute in attributes if attribute.kind in NUMBERS)}
    monitored = []
    for place, item in enumerate(fields.validate_items(document, "monitor", 0, MAX_MONITORED)):
        where = f"monitor[{place}]"
        needed = ("criterion", "column", "quantile")
        fields.check_mapping(item, where, (*needed, "window_seconds", "type"), required=needed)
        if item["criterion"] not in criteria:
            raise BadInput(
                f"{where}.criterion", f"{item['criterion']!r} is not in criteria; add an initial value there"
            )
        if item["column"] not in numbers:
            raise BadInput(f"{where}.column", f"must be one of {', '.join(sorted(numbers))}, not {item['column']!r}")
        quantile = checks.accept_number(0, 1).validate(item["quantile"], f"{where}.quantile")
        window_seconds = fields.validate_seconds(item.get("window_seconds", 300.0), f"{where}.window_seconds")
        if window_seconds < 1:
            raise BadInput(f"{where}.window_seconds", "must be at least 1")
        kind = None if item.get("type") is None else fields.validate_text(item["type"], f"{where}.type")
        monitored.append(MonitoredQuantile(item["criterion"], item["column"], float(quantile), window_seconds, kind))
    fields.check_distinct_names([quantile.criterion for quantile in monitored], "monitor")
    return tuple(monitored)


def _parse_attributes(document: object) -> tuple[Attribute, ...]:
    attributes = []
    for name, value in fields.validate_pairs(document, "attributes", "name: type", MAX_ATTRIBUTES).items():
        where = f"attributes.{name}"
        fields.validate_name(name, where, COLUMN)
        if name in COLUMNS:
            raise BadInput(where, f"{name} is already a column of every event; choose another name")
        declared = value if isinstance(value, dict) else {"type": value}
        fields.check_mapping(declared, where, ("type", "required"), required=("type",))
        kind = checks.accept_choice(TYPES).validate(declared["type"], where)
        required = checks.FLAG.validate(declared.get("required", False), f"{where}.required")
        attributes.append(Attribute(name, kind, required))
    return tuple(attributes)


def _build_graph(document: Mapping[str, Any]) -> Graph:
    """Build the graph of the declared operators, and of one operator for each standalone pattern."""
    key = document.get("key")
    declared = fields.validate_items(document.get("operators", []), "operators", 0, MAX_OPERATORS)
    # The number of patterns is checked before any is parsed.
    lists = [operator.get("patterns") for operator in declared if isinstance(operator, Mapping)]
    count = sum(len(sublist) for sublist in (*lists, document.get("patterns", [])) if isinstance(sublist, list))
    if count > MAX_PATTERNS:
        raise Forbidden("patterns", f"must have at most {MAX_PATTERNS} patterns, not {count}")
    operators = [_parse_operator(item, f"operators[{place}]", key) for place, item in enumerate(declared)]
    for place, item in enumerate(fields.validate_items(document.get("patterns", []), "patterns", 0)):
        pattern = _parse_pattern(item, f"patterns[{place}]", key)
        operators.append(Operator(pattern.name, str(pattern.key), (pattern,)))
    if not operators:
        raise BadInput("patterns", "must be a list of at least one pattern, here or in operators")
    fields.check_distinct_names([operator.name for operator in operators], "operators")
    fields.check_distinct_names([pattern.name for operator in operators for pattern in operator.patterns], "patterns")
    graph = Graph(tuple(operators))
    _check_weights(graph, _locate_patterns(document))
    return graph


def _check_pattern_columns(graph: Graph, columns: Collection[str], places: Mapping[str, str]) -> None:
    """Raise `BadInput` if a pattern reads a column that events don't have after the rules."""
    emitted = [name for name in sorted(graph.inner_measures) if name not in columns]
    for pattern in graph.patterns:
        where = places[pattern.name]
        expressions: dict[str, Predicate | BoundExpression] = {
            f"{where}.define.{symbol}": pattern.defines[symbol] for symbol in pattern.symbols
        }
        expressions |= {f"{where}.measures.{name}": measure for name, measure in pattern.measures.items()}
        for place, expression in expressions.items():
            for column in sorted((expression.all_columns | expression.all_previous) - {*columns, *emitted}):
                raise BadInput(place, describe_missing_column(column, [*columns, *emitted]))
        for name in pattern.measures:
            if name in columns:
                raise BadInput(f"{where}.measures.{name}", f"{name} is already a column of events; choose another name")
        if pattern.key is not None and pattern.key not in columns:
            raise BadInput(f"{where}.key", describe_missing_column(pattern.key, columns))


def _check_weights(graph: Graph, places: Mapping[str, str]) -> None:
    """Raise `BadInput` if patterns give one type different weights."""
    weights: dict[str, Pattern] = {}
    for pattern in graph.patterns:
        first = weights.setdefault(pattern.emits, pattern)
        if pattern.weight != first.weight:
            raise BadInput(
                f"{places[pattern.name]}.weight",
                f"must be {first.weight:g}, as for {first.name}, which also emits {pattern.emits}",
            )


def _parse_operator(document: object, where: str, key: object) -> Operator:
    document = fields.check_mapping(document, where, ("name", "key", "patterns"), required=("name", "patterns"))
    name = fields.validate_name(document["name"], f"{where}.name", checks.PLANT_NAME)
    own_key = fields.validate_text(document.get("key", key), f"{where}.key")
    patterns = tuple(
        _parse_pattern(item, f"{where}.patterns[{place}]", own_key)
        for place, item in enumerate(fields.validate_items(document["patterns"], f"{where}.patterns"))
    )
    for place, pattern in enumerate(patterns):
        if pattern.key != own_key:
            raise BadInput(
                f"{where}.patterns[{place}].key", f"must be the operator's key, {own_key}, not {pattern.key}"
            )
    return Operator(name, own_key, patterns)


def _locate_patterns(document: Mapping[str, Any]) -> dict[str, str]:
    """Map each pattern to its position in the declaration."""
    places = {item["name"]: f"patterns[{place}]" for place, item in enumerate(document.get("patterns", []))}
    for place, operator in enumerate(document.get("operators", [])):
        for inner, item in enumerate(operator["patterns"]):
            places[item["name"]] = f"operators[{place}].patterns[{inner}]"
    return places


def _parse_sinks(document: Mapping[str, Any], graph: Graph, queues: list[str]) -> dict[str, tuple[str, ...]]:
    default = _parse_sink(document["sink"], "sink", queues)
    emitted = {pattern.emits for pattern in graph.patterns}
    sinks = {event_type: [default] for event_type in emitted - graph.inner_types}
    for place, item in enumerate(fields.validate_items(document.get("sinks", []), "sinks", 0, MAX_QUEUES)):
        where = f"sinks[{place}]"
        fields.check_mapping(item, where, ("queue", "types"), required=("queue", "types"))
        queue = _parse_sink(item["queue"], f"{where}.queue", queues)
        for event_type in fields.validate_items(item["types"], f"{where}.types"):
            fields.validate_text(event_type, f"{where}.types")
            if event_type not in emitted:
                known = ", ".join(sorted(emitted))
                raise BadInput(f"{where}.types", f"no pattern emits {event_type!r}; the emitted types are {known}")
            sinks.setdefault(event_type, []).append(queue)
    return {event_type: tuple(dict.fromkeys(queues)) for event_type, queues in sinks.items()}


def _parse_sink(value: object, where: str, queues: list[str]) -> str:
    sink = fields.validate_name(value, where, checks.QUEUE_NAME)
    if sink in queues:
        raise BadInput(
            where, f"{sink} is an input of this application, so complex events would loop; choose another queue"
        )
    return sink


def _parse_pattern(document: object, where: str, key: object) -> Pattern:
    keys = ("name", "pattern", "define", "measures", "key", "within_seconds", "quiet_seconds", "emits", "severity")
    needed = ("name", "pattern", "within_seconds")
    document = fields.check_mapping(document, where, (*keys, "contiguity", "consume", "weight"), required=needed)
    name = fields.validate_name(document["name"], f"{where}.name", checks.PLANT_NAME)
    expression = parse_expression(document["pattern"], f"{where}.pattern")
    if expression.at_first or expression.at_last:
        raise BadInput(f"{where}.pattern", "must not use ^ or $: a stream has no first or last event")
    define = fields.validate_pairs(document.get("define", {}), f"{where}.define", "symbol: condition", MAX_SYMBOLS)
    severity = document.get("severity", "warning")
    if severity not in SEVERITIES:
        raise BadInput(f"{where}.severity", f"must be one of {', '.join(SEVERITIES)}, not {severity!r}")
    pattern = Pattern(
        name=name,
        expression=expression,
        defines=parse_definitions(expression, define, f"{where}.define"),
        key=fields.validate_text(document.get("key", key), f"{where}.key"),
        within_us=fields.convert_to_microseconds(document["within_seconds"], f"{where}.within_seconds"),
        suppression_us=fields.convert_to_microseconds(document.get("quiet_seconds", 0), f"{where}.quiet_seconds"),
        emits=fields.validate_text(document.get("emits", name), f"{where}.emits"),
        severity=severity,
        contiguity=validate_choice(document.get("contiguity", "relaxed"), CONTIGUITIES, f"{where}.contiguity"),
        consume=validate_choice(document.get("consume", "once"), CONSUMPTIONS, f"{where}.consume"),
        weight=float(checks.accept_number(0, MAX_WEIGHT).validate(document.get("weight", 1.0), f"{where}.weight")),
        measures=_parse_measures(expression, document.get("measures", {}), f"{where}.measures"),
    )
    check_states(pattern, f"{where}.pattern")
    return pattern


def _parse_measures(expression: Expression, document: object, where: str) -> dict[str, BoundExpression]:
    measures = fields.validate_pairs(document, where, "name: value", MAX_MEASURES)
    for name in measures:
        fields.validate_name(name, f"{where}.{name}", COLUMN)
        if name in (*ATTRIBUTES, *COLUMNS):
            raise BadInput(f"{where}.{name}", f"{name} is an attribute of every complex event; choose another name")
    return parse_measures(expression, measures, where)


def read_rule(document: object, where: str, folder: Path) -> Rule:
    document = fields.check_mapping(document, where, ("name", *RULES), required=("name",))
    name = fields.validate_text(document["name"], f"{where}.name")
    kinds = [key for key in document if key != "name"]
    if len(kinds) != 1:
        found = f", not {', '.join(kinds)}" if kinds else "; it has none"
        raise BadInput(where, f"must have exactly one of {', '.join(RULES)}{found}")
    kind, value = kinds[0], document[kinds[0]]
    place = f"{where}.{kind}"
    if kind in ("discard", "keep"):
        return Filter(name, fields.validate_text(value, place, MAX_CHARACTERS), kind == "discard")
    if kind == "sample":
        return Sample(name, float(checks.accept_greater_than(0, 1, "a share").validate(value, place)))
    if kind == "cleanse":
        return Cleanse(name, _parse_expressions(value, place))
    if kind == "project":
        fields.check_mapping(value, place, ("compute", "drop"), required=())
        compute = _parse_expressions(value.get("compute", {}), f"{place}.compute")
        return Project(name, compute, _parse_columns(value.get("drop", []), f"{place}.drop", 0))
    keys = ("table", "using", "by", "columns")
    fields.check_mapping(value, place, keys, required=keys)
    columns = _parse_columns(value["columns"], f"{place}.columns", 1)
    path = get_table_path(folder, fields.validate_text(value["table"], f"{place}.table"), f"{place}.table")
    by = fields.validate_text(value["by"], f"{place}.by")
    using = fields.validate_name(value["using"], f"{place}.using", COLUMN)
    return Enrich(name, using, ReferenceTable.open(path, by, columns, f"{place}.table"))


def _parse_columns(value: object, where: str, least: int) -> tuple[str, ...]:
    return tuple(fields.validate_name(column, where, COLUMN) for column in fields.validate_items(value, where, least))


def _parse_expressions(document: object, where: str) -> dict[str, str]:
    expressions: dict[str, str] = fields.validate_pairs(document, where, "column: expression", MAX_EXPRESSIONS)
    for column, text in expressions.items():
        fields.validate_name(column, where, COLUMN)
        fields.validate_text(text, f"{where}.{column}", MAX_CHARACTERS)
    return expressions
