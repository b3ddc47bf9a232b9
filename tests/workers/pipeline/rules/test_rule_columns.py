"""Columns built from our tree give what Spark's own parser gives for the same text, whatever the text."""

import ipaddress
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql

from workers.pipeline.rules.rule_language import parse_expression
from workers.pipeline.rules.rule_sql import convert_expression

pytestmark = [
    pytest.mark.spark,
    pytest.mark.thorough,  # Spark takes half a minute to start; tests/plant sees rules at work
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROWS = (
    ("e1", "cpu", "total", 85.5, "2026-11-20 06:07:08.123456", '{"a": {"b": [1, 2]}}', "92.126.10.7"),
    ("e2", "load", "load1", -2.0, "2026-01-01 00:00:00", '{"a": "x"}', "10.1.2.3"),
    ("e3", "Cpu,x", "a.b.c", 0.0, "1999-12-31 23:59:59", "", "256.1.1.1"),
    ("e4", "it's", "12", 3.0, "2026-03-29 01:30:00", None, "1.2.3"),
    ("e5", None, None, None, None, None, None),
    ("e6", "", "-7", float("nan"), "2026-11-20 06:07:08", "{}", ""),
    ("e7", "web-100%", "\\", 1e300, "2026-02-28 12:00:00", "[1]", "92.126.11.5"),
)

WRITTEN = r"""
value > 3 ; value > 1.5 and value <= 1e2 or type = 'cpu' ; not value > 3 and type is not null ; ! (type = "load") ;
value <=> null ; type <> 'cpu' and key != 'total' ; value between -2 and 3.5 ; value not between 0 and 1 ;
type in ('cpu', 'load', null) ; type not in ('cpu') ; value in (1, 3.0, -2) ; type like 'c%' ; type like '%u' ;
type like '%p%' ; type like 'w%0' ; type like '_pu' ; type not like 'c%' ; key like 'a.b.c' ;
value is true or type is null ; (value > 1) is true ; (value > 1) is not false ;
case when value >= 0 then least(value, 3) end ; case type when 'cpu' then 1 when 'load' then 2 else 0 end ;
if(value > 0, 'up', 'down') ; value + 1 * 2 - 3 / 4 % 5 ; -value + -1 ; 7 div 2 * 2 % 3 ; value / 0 ; 3000000000 + 1 ;
3L + 1S ; 2.50D * 1.5 ; 0.05 * 3 ; 1e3 ; key || '-' || type ; cast(key as int) + 1 ; cast(value as string) ;
value::bigint ; cast(time as date) = date '2026-11-20' ; time >= timestamp '2026-01-01 00:00:00' ;
try_cast(key as double) ; cast(type as boolean) ; coalesce(type, key, 'none') ; nullif(type, 'cpu') ; nvl2(type, 1, 2) ;
ifnull(value, 0) ; nanvl(value, 7.0) ; isnan(value) ; abs(value) ; round(value) ; round(value, 1) ; bround(value, -1) ;
floor(value) + ceil(value) ; sqrt(abs(value)) + ln(abs(value) + 1) ; pow(value, 2) + mod(7, 3) + pmod(-7, 3) ;
greatest(value, 2, -1) ; lower(type) || upper(key) ; trim(type) ; length(type) ; substring(type, 2, 3) ;
substr(key, -2) ; left(type, 2) || right(type, 2) ; concat(type, key) ; concat_ws('-', type, key, 'x') ;
replace(type, 'c', 'k') ; translate(type, 'cp', 'kq') ;
startswith(type, 'c') or endswith(type, 'd') or contains(type, '%') ; instr(type, 'p') + locate('p', type) ;
lpad(key, 5, '0') || rpad(key, 4, '.') ; split(key, '\\.')[1] ; split(type, ',')[0] ; size(split(key, '\\.', 2)) ;
element_at(split(key, '\\.'), 1) ; get_json_object(attributes, '$.a.b[1]') ;
year(time) * 10000 + month(time) * 100 + day(time) ; hour(time) + minute(time) + second(time) + dayofweek(time) ;
unix_seconds(time) ; date_trunc('hour', time) ; to_date(time) ; datediff(date '2026-11-20', to_date(time)) ;
xxhash64(id, type) ; hash(type) ; crc32(type) ; initcap(type) || reverse(key) ; 'it\'s' = type ; key = '\\' ;
type = '%'
"""

COLUMNS = ("id", "type", "key", "value", "time", "attributes", "address")


@pytest.fixture(scope="module")
def events(spark):
    text = ", ".join(["(?, ?, ?, cast(? as double), cast(? as timestamp), ?, ?)"] * len(ROWS))
    cells = [cell for row in ROWS for cell in row]
    return spark.sql(f"select * from values {text} as t({', '.join(COLUMNS)})", args=cells)


def answers(events, columns):
    """What each of many columns gives for every row, or that Spark refuses it."""
    try:
        table = events.select(*[column.alias(f"c{place}") for place, column in enumerate(columns)])
        fields = [field.dataType.simpleString() for field in table.schema]
        return [
            (kind, [_told(row[place]) for row in rows])
            for rows in [table.collect()]
            for place, kind in enumerate(fields)
        ]
    except AnalysisException:
        if len(columns) == 1:
            return ["refused"]
        return [each for column in columns for each in answers(events, [column])]


def _told(value):
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def assert_equal_to_sparks(events, texts):
    ours = answers(events, [convert_expression(parse_expression(text, "keep")) for text in texts])
    sparks = answers(events, [sql.expr(text) for text in texts])
    for text, own, other in zip(texts, ours, sparks, strict=True):
        assert own == other, text


def test_every_form_of_the_language_means_what_it_means_in_spark(events):
    assert_equal_to_sparks(events, [each.strip() for each in WRITTEN.split(" ;")])


@pytest.mark.parametrize("subnet", ["92.126.10.0/24", "92.126.10.0/23", "10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32"])
def test_an_address_is_in_its_subnets_only(events, subnet):
    inside = ipaddress.IPv4Network(subnet)
    found = events.where(convert_expression(parse_expression(f"in_subnet(address, '{subnet}')", "keep"))).collect()
    addresses = [row[6] for row in ROWS if row[6] in ("92.126.10.7", "10.1.2.3", "92.126.11.5")]
    expected = [each for each in addresses if ipaddress.IPv4Address(each) in inside]
    assert [row["address"] for row in found] == expected


NUMBERS = st.sampled_from(["value", "1", "2.5", "-3", "1e2", "length(type)", "cast(key as double)"])
TEXTS = st.sampled_from(["type", "key", "'cpu'", "'a.b.c'", "lower(type)", "concat(type, key)", "null"])


def grown(inner):
    pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner)
    return st.one_of(
        pairs.map(lambda made: f"({made[0]} {made[1]} {made[2]})"),
        st.tuples(inner, inner).map(lambda made: f"{made[0]} + {made[1]} * {made[0]}"),
        inner.map(lambda made: f"abs({made})"),
        st.tuples(inner, inner).map(lambda made: f"coalesce({made[0]}, {made[1]})"),
        st.tuples(inner, inner).map(lambda made: f"case when {made[0]} > 1 then {made[1]} end"),
    )


numbers = st.recursive(NUMBERS, grown, max_leaves=5)
atoms = st.one_of(
    st.tuples(numbers, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), numbers).map(" ".join),
    st.tuples(TEXTS, st.sampled_from(["=", "!=", "<"]), TEXTS).map(" ".join),
    TEXTS.map(lambda made: f"{made} in ('cpu', 'load')"),
    TEXTS.map(lambda made: f"{made} is not null"),
    numbers.map(lambda made: f"{made} between -1 and 90"),
    TEXTS.map(lambda made: f"{made} not like 'c%'"),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map("".join),
        inner.map(lambda made: f"not ({made})"),
        inner.map(lambda made: f"not {made}"),
    ),
    max_leaves=6,
)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(conditions, min_size=12, max_size=12))
def test_what_anybody_may_write_means_what_it_means_in_spark(events, texts):
    assert_equal_to_sparks(events, texts)
