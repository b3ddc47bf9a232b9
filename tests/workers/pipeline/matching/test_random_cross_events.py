"""Conditions between events on random documents, against a reference that tries one way after another."""

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import BadInput
from tests.workers.pipeline.matching.cross_reference import Case, build_case
from tests.workers.pipeline.matching.test_cross_events import agree, pairs
from workers.pipeline.matching.match_request import answer

DOCUMENTS = int(os.environ.get("WEIR_TEST_DOCUMENTS", "600"))  # 20,000 are a few minutes


def check(case: Case) -> bool:
    """Compare a document's answer with the reference. Returns False if the document is refused."""
    try:
        found = answer(case.document)
    except BadInput as refused:
        reasons = ("never", "no event has", "NOT", "quantifier", "repeat", "excludes")
        assert any(reason in refused.message for reason in reasons), (refused.field, refused.message, case.document)
        return False
    expected = [list(pair) for pair in case.expect()]
    assert agree(pairs(found, ordered=False), expected), (case.document, found, expected)
    return True


@settings(deadline=None, max_examples=60)
@given(st.randoms(use_true_random=False))
def test_a_small_document_has_the_matches_and_measures_of_the_reference(chance):
    check(build_case(chance))


@pytest.mark.thorough
def test_many_random_documents_have_the_matches_and_measures_of_the_reference():
    compared = sum(check(build_case(Random(seed))) for seed in range(DOCUMENTS))
    assert compared > 0.6 * DOCUMENTS
