"""Why events are in no match: the recorded matches equal the matcher's, and the reasons name the step that failed."""

import json

import pytest
from hypothesis import HealthCheck, given, reject, settings

from common.errors import BadInput, Forbidden
from tests.shared_data import DATA
from tests.workers.pipeline.matching.patterns import match_all, pattern_of, rows_of
from tests.workers.pipeline.matching.test_cross_event_state import EVENTS as BOUND_EVENTS
from tests.workers.pipeline.matching.test_cross_event_state import PATTERNS as BOUND_PATTERNS
from tests.workers.pipeline.matching.test_matchers import ANY_PATTERN, CONJUNCTIONS, EVENTS
from tests.workers.pipeline.matching.test_random_matches import documents
from workers.pipeline.matching.attempt import AutomatonRules
from workers.pipeline.matching.match_reasons import MAX_CANDIDATES, create_explainer
from workers.pipeline.matching.match_request import answer
from workers.pipeline.matching.match_trace import SearchedEvents, TracedRules, trace_attempts
from workers.pipeline.matching.matcher import Matcher, build_condition_columns, build_previous_columns, compute_masks
from workers.pipeline.matching.search_limit import SearchLimit

CASES = DATA / "reference"
STRICT_ROWS = {"consume": "skip-past-last", "contiguity": "strict"}


def search(pattern, rows) -> SearchedEvents:
    own = {name: rows.column(name) for name in rows.schema.names}
    before = build_previous_columns(pattern, own, rows)
    columns = build_condition_columns(pattern, rows, before)
    return SearchedEvents.build(rows, compute_masks(pattern, rows, before), columns, rows.column("time").to_pylist(), 1)


def letters(text: str, **more) -> list[dict]:
    return [
        {"id": f"{letter}{place}", "time": float(place), "type": letter, "value": place, **more}
        for place, letter in enumerate(text)
    ]


def reasons(pattern: str, events: str | list[dict], **more) -> dict[str, list[str]]:
    """Return the reasons of the events that are in no match, by ID."""
    given_events = letters(events) if isinstance(events, str) else events
    found = answer({"pattern": pattern, "events": given_events, "explain": True, **more})
    return {event["id"]: list(event["reasons"]) for event in found["events"] if event["match"] is None}


def payments(*rows: tuple) -> list[dict]:
    return [
        {"id": id, "time": float(time), "type": "payment", "card": card, "amount": amount}
        for id, time, card, amount in rows
    ]


JUMP = {"define": {"A": "true", "B": "amount > 10 * A.amount"}, "key": "card", "within_seconds": 60}


def test_a_condition_between_events_that_is_false_is_shown_with_its_values():
    said = reasons("SEQ(A; B)", payments(("p1", 0, "anna", 93), ("p2", 10, "anna", 80)), **JUMP)
    assert said["p1"] == [
        "Starts a match as A. The next step, B, is missing.",
        "p2 doesn't fit B: B.amount 80 > 10 × A.amount 93 (80 > 930) is false.",
        "No further events.",
    ]
    assert said["p2"][0] == (
        "In the match from p1, p2 doesn't fit B: B.amount 80 > 10 × A.amount 93 (80 > 930) is false."
    )


def test_a_missing_value_makes_a_condition_unknown():
    said = reasons("SEQ(A; B)", payments(("p1", 0, "anna", 93), ("p2", 10, "anna", None)), **JUMP)
    assert "p2 doesn't fit B: B.amount missing > 10 × A.amount 93 (missing > 930) is unknown." in said["p1"]


def test_an_event_of_another_key_and_one_after_the_window_are_named():
    rows = payments(("p1", 0, "anna", 1), ("p2", 10, "ben", 50), ("p3", 100, "anna", 70))
    said = reasons("SEQ(A; B)", rows, **JUMP)
    assert said["p1"][1:] == [
        'p2 fits, but it has another key (card: "ben").',
        "The window of 60 s from p1 ended.",
        "p3 fits, but comes after 100 s.",
    ]


def test_only_the_events_that_come_closest_are_named():
    define = {"A": "type = 'A'", "B": "type != 'A' and value > 100"}
    said = reasons("SEQ(A; B)", "ACCCCC", define=define)
    assert len([text for text in said["A0"] if "doesn't fit B: B.value" in text]) == MAX_CANDIDATES
    assert "2 more events don't fit either." in said["A0"]


@pytest.mark.parametrize(
    ("pattern", "events", "more", "id", "says"),
    [
        ("SEQ(A; NOT X; B)", "AXB", {}, "A0", "In the match from A0, NOT X forbids X1."),
        ("SEQ(A; NOT X; B)", "AXB", {}, "X1", "In the match from A0, NOT X forbids X1."),
        ("SEQ(A; NOT X; B)", "AXB", {}, "B2", "Fits B, but no match of its key is open. A match starts with A."),
        ("SEQ(A; B)", "AXB", STRICT_ROWS, "A0", "With strict contiguity, it ends the match from A0."),
        ("SEQ(A; B)", "ACB", {}, "C1", 'No symbol takes events of type "C".'),
        ("SEQ(A; B; C)", "ACBC", {}, "C1", "Fits C, but the match from A0 needs B next."),
        (
            "SEQ(A; low)",
            "AB",
            {"define": {"low": "type = 'B' and value < 1"}},
            "B1",
            "Doesn't fit low: low.value 1 < 1 is false.",
        ),
        ("SEQ(A; B; C)", "ABBC", {"consume": "skip-past-last"}, "B2", "Fits B, but lies within match 1."),
        ("SEQ(A; B; C)", "ABBC", {"consume": "skip-past-last"}, "B2", "the search continues after C3."),
        ("SEQ(A; {- B -}; C)", "ABC", {}, "B1", "It belongs to match 1, but {- -} excludes it from the result."),
        ("SEQ(^A; B)", "AAB", {}, "A1", "With ^, only the first event of a key starts a match."),
        ("AND(A, B, C)", "AB", {"within_seconds": 3}, "A0", "No unused events fit C within 3 s."),
        ("AND(A, B{2})", "AB", {"within_seconds": 3}, "A0", "No unused events fit B within 3 s."),
        ("SEQ(A; B)", "AAB", {}, "A1", "B2 fits B, but the match from A0 uses it."),
        ("SEQ(A; OR(B, C))", "A", {}, "A0", "The next step, B or C, is missing."),
    ],
)
def test_the_step_that_failed_is_named(pattern, events, more, id, says):
    said = " ".join(reasons(pattern, events, **more)[id])
    assert says in said, said


def test_matched_events_have_their_match_and_symbol():
    found = answer({"pattern": "SEQ(A; B+; C)", "events": letters("ABXBC"), "explain": True})
    shown = [(event["id"], event["match"], event["symbol"]) for event in found["events"]]
    assert shown == [("A0", 1, "A"), ("B1", 1, "B"), ("X2", None, None), ("B3", 1, "B"), ("C4", 1, "C")]


@settings(deadline=None, max_examples=150)
@given(ANY_PATTERN, EVENTS)
def test_the_recorded_matches_equal_those_of_the_matcher(pattern, events):
    check_attempts(pattern, rows_of(events))


@settings(deadline=None, max_examples=60)
@given(BOUND_EVENTS)
def test_the_recorded_matches_equal_those_of_the_matcher_with_conditions_between_events(events):
    for pattern in BOUND_PATTERNS:
        check_attempts(pattern, rows_of(events))


def check_attempts(pattern, rows):
    matches = match_all(pattern, rows).get_event_ids()
    events = search(pattern, rows)
    is_pool = pattern.needed and not pattern.bindings and pattern.is_relaxed and pattern.consume == "once"
    if not is_pool:
        found = [attempt.match for attempt in trace_attempts(TracedRules(pattern), events)]
        shown = [[events.ids[taken.place] for taken in match if not taken.hidden] for match in found]
        assert sorted(ids for ids in shown if ids) == sorted(matches)
    check_reasons(pattern, events, matches)


@settings(deadline=None, max_examples=60)
@given(CONJUNCTIONS, EVENTS)
def test_an_and_is_explained_too(pattern, events):
    rows = rows_of(events)
    check_reasons(pattern, search(pattern, rows), match_all(pattern, rows).get_event_ids())


def check_reasons(pattern, events, matches):
    """Each event is in a match or has a reason, and each reason is a whole sentence."""
    for event in create_explainer(pattern, events).explain(matches):
        assert (event.match is None) == bool(event.reasons), event
        assert all(text.endswith(".") and "  " not in text for text in event.reasons), event


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(documents())
def test_random_documents_are_explained(document):
    try:
        found = answer({**document, "explain": True})
    except BadInput:
        reject()
    for event in found["events"]:
        assert (event["match"] is None) == bool(event["reasons"]), event


def test_the_cases_of_other_engines_are_explained():
    path = CASES / "cep_cross_event.json"
    if not path.exists():
        pytest.skip("the reference cases lie beside the project and are not here")
    for case in json.loads(path.read_text())["cases"]:
        for event in answer({**case["request"], "explain": True}).get("events", []):
            assert (event["match"] is None) == bool(event["reasons"]), (case["id"], event)


class CountedSteps(SearchLimit):
    """A limit of the number of steps, which also counts the recorded branches."""

    def __init__(self, max_steps: float = float("inf")) -> None:
        self.max_steps, self.steps, self.recorded = max_steps, 0, 0

    def check_step(self) -> None:
        self.steps += 1
        if self.steps > self.max_steps:
            raise Forbidden("events", "too many steps")

    def check_recorded(self, branches: int) -> None:
        self.recorded += branches


def test_a_search_with_too_many_steps_is_stopped():
    """The caller sets the limit of a search."""
    pattern = BOUND_PATTERNS[0]
    events = search(pattern, rows_of([(at, "A", at, "x") for at in range(20)]))
    with pytest.raises(Forbidden):
        create_explainer(pattern, events, CountedSteps(0))


NOT_BETWEEN = pattern_of(
    "SEQ(A+; C+; NOT N; B)",
    {
        "A": "type = 'a'",
        "C": "type = 'a' and value > A.value",
        "N": "type = 'n' and value < A.value - C.value",
        "B": "type = 'b'",
    },
    within_us=1_000,
)
MANY_BRANCHES = [*((at, "a", at, "x") for at in range(20)), *((at, "n", at, "x") for at in range(20, 40))]


def test_each_step_of_the_search_and_of_the_matcher_counts(monkeypatch):
    calls = []
    for name in ("list_takes", "pass_over"):
        original = getattr(AutomatonRules, name)

        def count(rules, *arguments, original=original):
            calls.append(original.__name__)
            return original(rules, *arguments)

        monkeypatch.setattr(AutomatonRules, name, count)
    rows = rows_of(MANY_BRANCHES)
    limit = CountedSteps()
    trace_attempts(TracedRules(NOT_BETWEEN, limit=limit), search(NOT_BETWEEN, rows))
    assert limit.steps == len(calls) and calls.count("pass_over") > 200
    calls.clear()
    limit = CountedSteps()
    Matcher(NOT_BETWEEN, limit=limit).take(rows)
    assert limit.steps == len(calls) and calls.count("pass_over") > 200


def test_the_recorded_branches_count():
    limit, rules = CountedSteps(), TracedRules(NOT_BETWEEN)
    rules.limit = limit
    attempts = trace_attempts(rules, search(NOT_BETWEEN, rows_of(MANY_BRANCHES)))
    assert limit.recorded == sum(len(branches) for attempt in attempts for _, branches in attempt.changes) > 200


def test_each_branch_that_an_explanation_reads_counts():
    """An explanation of an event reads all branches of an attempt."""
    limit, rows = CountedSteps(), rows_of(MANY_BRANCHES)
    explainer = create_explainer(NOT_BETWEEN, search(NOT_BETWEEN, rows), limit)
    before = limit.steps
    explainer.explain([])
    assert limit.steps - before > 5_000


def test_expected_matches_are_compared_and_the_missing_ones_explained():
    rows = payments(("p1", 0, "anna", 93), ("p2", 10, "anna", 80), ("p3", 20, "anna", 940))
    request = {"pattern": "SEQ(A; B)", "events": rows, **JUMP}
    same = answer({**request, "expected": [["p1", "p3"]]})
    assert (same["missing"], same["unexpected"], same["reasons"]) == ([], [], {})
    other = answer({**request, "expected": [["p1", "p2"]]})
    assert (other["missing"], other["unexpected"]) == ([["p1", "p2"]], [["p1", "p3"]])
    assert other["reasons"]["p2"][0].startswith("In the match from p1, p2 doesn't fit B: B.amount 80 > 10")


@pytest.mark.parametrize(
    ("expected", "field", "says"),
    [
        ("A0", "expected", "must be a list of matches"),
        ([["A0"], []], "expected[1]", "must be a list of IDs of events"),
        ([["A0", 3]], "expected[0]", "must be a list of IDs of events"),
        ([["A9"]], "expected[0]", "'A9' is not the ID of an event"),
    ],
)
def test_invalid_expected_matches_are_refused_by_name(expected, field, says):
    with pytest.raises(BadInput, match=says.replace("[", r"\[")) as refused:
        answer({"pattern": "SEQ(A; B)", "events": letters("AB"), "expected": expected})
    assert refused.value.field == field


def test_a_request_without_events_can_expect_no_matches():
    assert answer({"pattern": "A", "events": [], "expected": []})["missing"] == []
