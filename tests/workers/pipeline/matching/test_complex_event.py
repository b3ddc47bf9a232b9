"""Complex events say which events they are of, whatever these are called."""

from hypothesis import given
from hypothesis import strategies as st

from common.stored_document import decode_document
from tests.workers.pipeline.matching.patterns import match_all, pattern_of, rows_of
from workers.documents.pipeline import MatchAttributes
from workers.pipeline.matching.complex_event import build_complex_events

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2**50),
        st.sampled_from("AB"),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.characters(codec="utf-8"),
    ),
    max_size=20,
)


@given(EVENTS, st.integers(0, 50))
def test_a_complex_event_lists_its_contributing_events_as_they_were(events, suppression_us):
    pattern = pattern_of("SEQ(A; B)", within_us=2**50, suppression_us=suppression_us, emits="ab")
    matches = match_all(pattern, rows_of(events))
    made = build_complex_events(pattern, matches, "ab:run.1:0").to_pylist()
    emitted = list(matches.list_emitted())
    assert [event["source"] for event in made] == [key for key, _ in emitted]
    assert len({event["id"] for event in made}) == len(made)
    for event, (_, taken) in zip(made, emitted, strict=True):
        said = decode_document(MatchAttributes, event["attributes"], "attributes")
        names = ("time_us", "id", "type", "value", "source")
        assert [tuple(getattr(each, name) for name in names) for each in said.events] == taken
        assert (said.pattern, said.severity) == (pattern.name, "warning")
        assert said.first_time == taken[0][0] / 1e6
        assert (event["type"], event["value"]) == ("ab", taken[-1][3])
