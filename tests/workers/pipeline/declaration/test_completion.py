"""Names that the editor of a declaration suggests."""

import pytest

from workers.pipeline.declaration.completion import list_completions

TEXT = """
attributes: {amount: number}
patterns:
  - {name: returned, pattern: "SEQ(paid; NOT refund; B+)", measures: {ratio: B.amount}}
operators:
  - patterns: [{pattern: "AND(C, D{2})"}, 3]
  - 4
"""


def test_symbols_attributes_measures_columns_and_functions_are_suggested():
    names = list_completions(TEXT)
    assert names["symbols"] == ["B", "C", "D", "paid", "refund"]
    assert {"amount", "ratio", "value", "time"} <= set(names["columns"])
    assert {"first", "sum", "prev"} <= set(names["functions"])
    assert names["patterns"] == ["returned"]


@pytest.mark.parametrize("text", ["", "- 1", "patterns: 3", "attributes: [a]", "a: [", "operators: {a: 1}"])
def test_a_text_that_is_not_finished_still_has_the_columns_of_every_event(text):
    names = list_completions(text)
    assert names["symbols"] == [] and "value" in names["columns"]
