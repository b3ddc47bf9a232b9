"""Rules evaluated on Arrow arrays, in the tasks that read the events.

`ArrowRules` gives the results of the plan of `rule_sql` without sending events to Java and back. If texts repeat, it
evaluates each distinct text once. If it can't evaluate the rules of an application exactly, Spark runs them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.events.distinct_texts import DistinctTexts
from workers.pipeline.events.layout import Layout, get_criterion_column
from workers.pipeline.events.text_hashes import SEED, hash_texts
from workers.pipeline.rules.arrow_casts import parse_whole
from workers.pipeline.rules.arrow_expressions import compile_expression
from workers.pipeline.rules.arrow_operators import as_condition
from workers.pipeline.rules.arrow_values import (
    Compiled,
    EventColumns,
    NotInArrowError,
    build,
    compute_by_form,
    make_column,
)
from workers.pipeline.rules.reference import Reference
from workers.pipeline.rules.rule_language import parse_expression
from workers.pipeline.rules.rules import (
    AUTO,
    BUCKETS,
    REMOVING,
    SPARK,
    Cleanse,
    Enrich,
    Filter,
    Project,
    Rule,
    Sample,
    check_columns,
    list_named_columns,
    list_named_criteria,
)

Step = Callable[[EventColumns], EventColumns]
_ADDRESS = r"\A[0-9]{1,3}(\.[0-9]{1,3}){3}\z"


def find_spark_reason(rules: tuple[Rule, ...], layout: Layout, engine: str = AUTO) -> str | None:
    """Return why rules run in Spark, as a clause; None if they run in Arrow."""
    if engine == SPARK:
        return "the declaration sets engine: spark"
    try:
        ArrowRules(rules, layout, ())
    except NotInArrowError as reason:
        return str(reason)
    return None


def check_arrow_rules(rules: tuple[Rule, ...], layout: Layout, needed: Collection[str]) -> dict[str, str]:
    """Return the SQL type of each column after rules that run in Arrow, as `rule_sql.check_rules` does in Spark.

    Raises `BadInput` if a column that a pattern needs is missing or has another type than events have.
    """
    kinds = ArrowRules(rules, layout, ()).kinds
    check_columns(kinds, needed)
    return kinds


class ArrowRules:
    """The rules of an application as functions of Arrow arrays."""

    def __init__(self, rules: tuple[Rule, ...], layout: Layout, names: Iterable[str]) -> None:
        """names: the columns that are needed after the rules.

        Raises `NotInArrowError` that names the rule.
        """
        self._names = tuple(names)
        self._kinds = dict(layout.kinds)
        self._removing = [rule.name for rule in rules if isinstance(rule, REMOVING)]
        self._steps: list[tuple[str, Step]] = []
        for place, rule in enumerate(rules):
            try:
                step = self._compile_rule(rule, _list_needed(rules[place + 1 :], self._names))
            except NotInArrowError as reason:
                raise NotInArrowError(f'rule "{rule.name}" uses {reason}') from None
            self._steps.append((rule.name, step))

    @property
    def kinds(self) -> dict[str, str]:
        """Return the type of each column after the rules, by its name in SQL."""
        return dict(self._kinds)

    @property
    def counted(self) -> tuple[str, ...]:
        """Return the rules after which events are counted: each rule that removes events, except the last one."""
        return tuple(self._removing[:-1])

    def apply(self, batch: pa.RecordBatch, passed: dict[str, int]) -> pa.RecordBatch:
        """Return the events that pass the rules, with the needed columns. Adds the counts of each rule to `passed`."""
        events = EventColumns({name: batch.column(name) for name in batch.schema.names}, batch.num_rows)
        for name, events_after in self.iterate_steps(events):
            events = events_after
            if name in passed:
                passed[name] += events.rows
        return pa.RecordBatch.from_arrays([events.columns[name] for name in self._names], names=list(self._names))

    def iterate_steps(self, events: EventColumns) -> Iterator[tuple[str, EventColumns]]:
        """Yield each rule and the events that pass it, with the columns that are needed after it."""
        for name, step in self._steps:
            events = step(events)
            yield name, events

    def _compile_rule(self, rule: Rule, needed: frozenset[str]) -> Step:
        """Compile a rule. needed: the columns that are needed after it."""
        match rule:
            case Filter():
                return _keep(as_condition(self._compile(rule.condition, rule.name)), rule.discard, needed)
            case Project():
                compute = self._compile_all(rule.compute, rule.name)
                self._add({name: column.kind for name, column in compute.items()})
                self._drop(rule.drop)
                return _replace_columns(compute, rule.drop)
            case Cleanse():
                clean = self._compile_all(rule.columns, rule.name)
                self._add({name: column.kind for name, column in clean.items()})
                return _cleanse(clean, needed)
            case Enrich():
                if self._kinds[rule.using] != "string":
                    raise NotInArrowError(f"a table with the key {rule.using}, which isn't a string")
                step = _enrich(make_column("string", rule.using), rule.using, rule.table.current)
                self._add(dict.fromkeys(rule.table.columns, "string"))
                return step
            case Sample():
                return _sample(rule.share, needed)
        raise TypeError(f"{rule!r} is not a rule")

    def _compile(self, text: str, name: str) -> Compiled:
        return compile_expression(parse_expression(text, name).tree, self._kinds)

    def _compile_all(self, texts: Mapping[str, str], name: str) -> dict[str, Compiled]:
        return {column: self._compile(text, name) for column, text in texts.items()}

    def _add(self, kinds: Mapping[str, str]) -> None:
        for name in kinds:
            if any(name != other and name.lower() == other.lower() for other in (*self._kinds, *kinds)):
                raise NotInArrowError(f"the name {name}, which differs from another one only in its case")
        self._kinds |= kinds

    def _drop(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self._kinds and name.lower() in map(str.lower, self._kinds):
                raise NotInArrowError(f"the name {name}, which differs from another one only in its case")
            self._kinds.pop(name, None)


def _list_needed(rules: tuple[Rule, ...], names: tuple[str, ...]) -> frozenset[str]:
    """Return the columns that are needed by these rules or after them."""
    criteria = {get_criterion_column(name) for name in list_named_criteria(rules)}
    sampled = {"id"} if any(isinstance(rule, Sample) for rule in rules) else set()
    return list_named_columns(rules) | criteria | sampled | frozenset(names)


def _select(events: EventColumns, needed: frozenset[str]) -> EventColumns:
    return events.replace({name: column for name, column in events.columns.items() if name in needed})


def _keep(condition: Compiled, discard: bool, needed: frozenset[str]) -> Step:
    def step(events: EventColumns) -> EventColumns:
        held = pc.fill_null(condition.compute(events), False)
        return _select(events, needed).filter(pc.invert(held) if discard else held)

    return step


def _replace_columns(compute: Mapping[str, Compiled], drop: tuple[str, ...] = ()) -> Step:
    def step(events: EventColumns) -> EventColumns:
        made = {name: column.compute(events) for name, column in compute.items()}
        kept = {name: column for name, column in {**events.columns, **made}.items() if name not in drop}
        return events.replace(kept)

    return step


def _cleanse(columns: Mapping[str, Compiled], needed: frozenset[str]) -> Step:
    replace = _replace_columns(columns)

    def step(events: EventColumns) -> EventColumns:
        events = replace(events)
        # NaN counts as null here, as in Spark.
        nulls = [pc.is_null(events.columns[name], nan_is_null=True) for name in columns]
        return _select(events, needed).filter(pc.invert(reduce(pc.or_, nulls)))

    return step


def _sample(share: float, needed: frozenset[str]) -> Step:
    def step(events: EventColumns) -> EventColumns:
        hashes = hash_texts(events.columns["id"], np.full(events.rows, SEED, np.int64))
        kept = pa.array(hashes % BUCKETS < round(share * BUCKETS))
        return _select(events, needed).filter(kept)

    return step


def _enrich(key: Compiled, using: str, table: Reference) -> Step:
    if table.networks:
        rows = [row for rows_of_length in table.networks.values() for row in rows_of_length.values()]
        find = _find_by_network(table)
    else:
        rows = list(table.equal.values())
        keys = pa.array(list(table.equal), pa.string())
        find = partial(pc.index_in, value_set=keys)
    found = build("int", find, key)
    # The last element is the null for rows that are not in the table.
    values = [pa.array([*(row[place] for row in rows), None], pa.string()) for place in range(len(table.columns))]

    def step(events: EventColumns) -> EventColumns:
        places = pc.fill_null(found.compute(events), len(rows))
        made = {name: texts.take(places) for name, texts in zip(table.columns, values, strict=True)}
        result = events.replace({**events.columns, **made})
        if (len(rows) + 1) * 4 < events.rows:
            result.distinct |= {
                name: DistinctTexts(texts, places) for name, texts in zip(table.columns, values, strict=True)
            }
        return result

    return step


def _find_by_network(table: Reference) -> Callable[[pa.Array], pa.Array]:
    """Return a function that finds the row with the longest prefix of all networks that contain an address."""
    lengths: list[tuple[int, pa.Array, int]] = []
    first = 0
    for length, rows in table.networks.items():
        lengths.append((length, pa.array(list(rows), pa.int64()), first))
        first += len(rows)

    def find(texts: pa.Array) -> pa.Array:
        numbers = read_addresses(texts)
        found = pa.nulls(len(texts), pa.int32())
        for length, networks, start in lengths:
            places = pc.index_in(pc.shift_right(numbers, 32 - length), value_set=networks)
            found = pc.coalesce(found, pc.add(places, pa.scalar(start, pa.int32())))
        return found

    return find


def read_addresses(texts: pa.Array) -> pa.Array:
    """Return IPv4 addresses as numbers; null for other texts. Each part is parsed like CAST to bigint."""
    return compute_by_form("bigint", texts, _ADDRESS, _join_parts, _read_address, "0.0.0.0")


def _join_parts(texts: pa.Array) -> pa.Array:
    parts = pc.split_pattern(texts, ".").flatten().cast(pa.int64()).to_numpy().reshape(-1, 4)
    numbers = parts @ np.array([2**24, 2**16, 2**8, 1], np.int64)
    return pa.array(numbers, mask=(parts > 255).any(axis=1))


def _read_address(text: str) -> int | None:
    number = 0
    parts = text.split(".")
    for part in parts:
        read = parse_whole(part, "bigint")
        if read is None or not 0 <= read <= 255:
            return None
        number = number * 256 + read
    return number if len(parts) == 4 else None
