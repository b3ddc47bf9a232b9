"""Rules are a language of ours: what reaches for files, classes, other data or more time is no part of it."""

import pytest

from common.errors import BadInput, Forbidden
from workers.pipeline.rules.rule_language import MAX_CHARACTERS, MAX_DEPTH, parse_expression
from workers.pipeline.rules.rules import Filter, Project, check_expressions

# What reaches for classes, files, users or time, and what makes a long text or takes long: no function of rules.
FUNCTIONS = """
java_method reflect try_reflect REFLECT read_files schema_of_json xpath_string parse_url input_file_name current_user
current_catalog version now rand uuid raise_error assert_true sequence repeat space array_repeat regexp_like
regexp_replace regexp_extract
"""
GIVEN = ("", "type, 2000000000", "'java.lang.System', 'exit', 0")
HOSTILE = (
    *(f"{name}({given}) = 'x'" for name in FUNCTIONS.split() for given in GIVEN),
    "(select count(*) from text.`/etc/passwd`) > 0",
    "exists (select 1 from text.`/etc/passwd`)",
    "value in (select value from csv.`/etc`)",
    "(select first(content) from binaryFile.`/etc/shadow`) is null",
    "value > (select max(value) from jdbc.`x`)",
    "(with x as (select 1) select * from x) = 1",
    "from_json(attributes, 'a int').a > 1",
    "rpad(type, 2000000000, 'x') = 'x'",
    "replace(type, 'a', repeat('a', 1000)) = 'x'",
    "replace(type, 'a', 'aaaaaaaaaaaaaaaaaaaa') = 'x'",
    "type rlike '(a+)+$'",
    "type regexp '(a|aa)+$'",
    "split(type, '(a+)+$')[0] = 'x'",
    "split(type, key)[0] = 'x'",
    "type like '%a%a%a%a%a%a%a%b'",
    "type like key",
    "type like any ('a', 'b')",
    "type ilike 'a'",
    "get_json_object(attributes, type) = 'x'",
    "transform(split(type, ','), x -> java_method('a', 'b', x))[0] = 'x'",
    "aggregate(sequence(1, 100000), 0, (a, b) -> a + b) > 1",
    "cast(attributes as map<string, string>)['a'] = 'x'",
    "struct(*).id = 'x'",
    "count(*) > 1",
    "sum(value) over (partition by id) > 1",
    "explode(split(type, ',')) = 'x'",
    "`java_method`('a', 'b') = 'x'",
    "system.builtin.reflect('java.lang.System', 'exit', 0) is null",
    "spark_catalog.default.f(1) = 1",
    "value > ${spark.app.id}",
    "value > {{x}}",
    "value > @x",
    "value > ?",
    "value > interval 1 day",
    "value > 1; drop table x",
    "value > 1 -- comment",
    "value > 1 /* comment */",
    "value > 1 union select 1",
    "id = 'a' 'b'",
    r"id = '\141'",
    "id = r'\\'",
    "id = x'41'",
    "\ud800 = 1",
    "value > 1\x00",
    "value > " + "9" * 5_000,
    "value > 1e400",
    "(" * 2_000 + "value" + ")" * 2_000 + " > 1",
    "not " * 900 + "value > 1",
    "- " * 900 + "value > 1",
    "abs(" * 400 + "value" + ")" * 400 + " > 1",
    "case when " * 300 + "true" + " then true end" * 300,
    " + ".join(["value"] * 450) + " > 1",
    " or ".join(["value > 1"] * 500),
    "value in (" + ",".join(["1"] * 1_500) + ")",
    "[" * 1_000,
    "a" * (MAX_CHARACTERS + 1),
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_not_of_the_language_is_refused_by_its_field(text):
    with pytest.raises(BadInput) as refused:
        check_expressions((Filter("r", text),), ("id", "type", "key", "value", "time", "attributes"), ())
    assert refused.value.field == "rules[0].keep"
    assert refused.value.message.startswith("(r) ")
    assert len(str(refused.value)) < 1_500


def test_a_refusal_says_what_is_allowed():
    with pytest.raises(Forbidden, match=r"'reflect' is not a function of rules; the functions are abs, .*upper"):
        parse_expression("reflect('a', 'b')", "keep")
    with pytest.raises(Forbidden, match=f"nested deeper than {MAX_DEPTH}"):
        parse_expression("(" * 13 + "value" + ")" * 13, "keep")
    with pytest.raises(BadInput, match="put it in parentheses"):
        parse_expression("value = value = value", "keep")


def test_columns_and_criteria_must_be_there():
    with pytest.raises(BadInput, match="'nobody' is not a column; the columns are id, value"):
        check_expressions((Filter("r", "nobody > 1"),), ("id", "value"), ())
    with pytest.raises(BadInput, match=":slow is not a declared criterion; the criteria are fast"):
        check_expressions((Filter("r", "value > :slow"),), ("id", "value"), ("fast",))
    dropped = (Project("p", {"double": "value * 2"}, ("value",)), Filter("r", "double > value"))
    with pytest.raises(BadInput, match=r"rules\[1\]\.keep: \(r\) 'value' is not a column"):
        check_expressions(dropped, ("id", "value"), ())


def test_rules_that_double_one_another_do_not_grow_beyond_measure():
    rules = [Project(f"p{n}", {f"c{n + 1}": f"c{n} + c{n}"}) for n in range(30)]
    with pytest.raises(Forbidden, match="parts after expanding its columns; the maximum is 2000"):
        check_expressions(rules, ("c0",), ())
    rules = [Project(f"p{n}", {f"c{n + 1}": f"concat(c{n}, c{n})"}) for n in range(8)]
    with pytest.raises(Forbidden, match="joins the strings of 32 columns; the maximum is 16"):
        check_expressions(rules, ("c0",), ())


def test_words_that_are_keywords_elsewhere_are_plain_columns():
    found = parse_expression("percent > 3 and row = 'x' and left(index, 1) = 'a' and select is null", "keep")
    assert found.columns == {"percent", "row", "index", "select"}
