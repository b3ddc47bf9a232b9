"""Each document is read as it was written, also by another version; and a bad one is refused by its field."""

import functools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from common.stored_document import (
    BadDocument,
    StoredDocument,
    convert,
    convert_to_plain,
    decode_document,
    encode_document,
    find_value,
    replace_fields,
)
from queues.nodes.heartbeat import Heartbeat
from tests.workers.snapshot.test_local_plant import documented
from tests.workers.snapshots import snapshot_of, without_nulls
from workers.coordination.merge_patch import apply_patch, compute_patch, document_difference
from workers.documents.alerts import AlertStatus, AuditVerdict
from workers.documents.controls import ControlValues
from workers.documents.hosts import ReportedHost
from workers.documents.loops import LoopStatus, OverrideStatus
from workers.documents.nodes import NodeStatus
from workers.documents.pipeline import PipelineReport
from workers.documents.plans import PlanDocument, PlanMove
from workers.documents.plants import LoadForecast, PlantHolder, PlantStatus
from workers.documents.queues import QueueStatus, ReportedProducer
from workers.documents.snapshot import Snapshot
from workers.pipeline.declaration.controls import Controls

KINDS = (
    Heartbeat,
    Snapshot,
    PipelineReport,
    ReportedHost,
    ReportedProducer,
    AuditVerdict,
    PlantHolder,
    ControlValues,
    Controls,
    OverrideStatus,
    PlanDocument,
    AlertStatus,
    PlantStatus,
    LoadForecast,
)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
texts = st.text(max_size=5)
json_values = st.none() | st.booleans() | st.integers(-9, 9) | texts


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """What a field of this type may hold."""
    match kind:
        case inspect.Metadata():
            return values_of(kind.type)
        case inspect.StructType():
            return documents_of(kind.cls)
        case inspect.UnionType():
            return st.one_of(*map(values_of, kind.types))
        case inspect.ListType():
            return st.lists(values_of(kind.item_type), max_size=2)
        case inspect.DictType():
            return st.dictionaries(texts, values_of(kind.value_type), max_size=2)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.IntType():
            return st.integers(-(2**53), 2**53)
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return texts
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.NoneType():
            return st.none()
    return json_values


@functools.cache  # a snapshot has hundreds of fields: to make its strategy costs more than to draw from it
def documents_of(kind: type[StoredDocument]) -> st.SearchStrategy[Any]:
    """Documents of a type; each field is given, or left to its default."""
    fields = inspect.type_info(kind).fields
    needed = {each.name: values_of(each.type) for each in fields if each.required}
    others = {each.name: values_of(each.type) for each in fields if not each.required}
    return st.fixed_dictionaries(needed, optional=others).map(lambda given: kind(**given))


@each_kind
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read(kind, data):
    document = data.draw(documents_of(kind))
    assert decode_document(kind, encode_document(document), "document") == document
    assert json.loads(encode_document(document)) == convert_to_plain(document)


@each_kind
def test_a_document_of_a_newer_writer_is_read_without_what_is_not_known(kind):
    minimal = minimal_of(kind)
    assert convert(kind, {**convert_to_plain(minimal), "a_field_of_tomorrow": [1]}) == minimal


@each_kind
def test_a_document_of_an_older_writer_has_a_default_for_what_it_left_out(kind):
    minimal = minimal_of(kind)
    needed = {each.encode_name for each in inspect.type_info(kind).fields if each.required}
    older = {name: value for name, value in convert_to_plain(minimal).items() if name in needed}
    assert decode_document(kind, json.dumps(older), "document") == minimal


def minimal_of(kind):
    examples = {inspect.IntType: 1, inspect.FloatType: 1.0, inspect.StrType: "a"}
    needed = {each.name: each.type for each in inspect.type_info(kind).fields if each.required}
    types = {name: each.type if isinstance(each, inspect.Metadata) else each for name, each in needed.items()}
    return kind(**{name: examples[type(each)] for name, each in types.items()})


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        ({"seq": "many"}, "snapshot.seq", "expected `int`, got `str`"),
        ({"nodes": {"n1": {"stale": "no!"}}}, "snapshot.nodes[...].stale", "expected `bool`, got `str`"),
        ({"plans": [{"id": 1}]}, "snapshot.plans[0]", "object missing required field `state`"),
        ({"queues": []}, "snapshot.queues", "expected `object`, got `array`"),
    ],
)
def test_a_bad_document_is_refused_with_the_place_and_what_it_takes(document, field, message):
    with pytest.raises(BadDocument) as refused:
        Snapshot.from_json(json.dumps(document))
    assert (refused.value.field, refused.value.message) == (field, message)


def test_text_that_is_no_json_is_refused_under_its_name():
    with pytest.raises(BadDocument, match=r"^heartbeat: "):
        Heartbeat.from_json(b"\xff{")


def test_a_whole_number_may_be_written_with_a_point():
    assert Snapshot.from_json(b'{"seq": 3.0}').seq == 3


def test_the_types_know_every_field_that_the_documentation_shows():
    assert unknown_fields(Snapshot, documented(), "snapshot") == []


def unknown_fields(kind: Any, document: Any, path: str) -> list[str]:
    info = inspect.type_info(kind) if isinstance(kind, type) else kind
    if isinstance(info, inspect.Metadata):
        return unknown_fields(info.type, document, path)
    if isinstance(info, inspect.UnionType):
        return unknown_fields(
            next(each for each in info.types if not isinstance(each, inspect.NoneType)), document, path
        )
    if isinstance(info, inspect.StructType) and isinstance(document, dict):
        fields = {each.encode_name: each.type for each in info.fields}
        lost = [f"{path}.{name}" for name in document if name not in fields]
        inner = [(fields[name], value, f"{path}.{name}") for name, value in document.items() if name in fields]
    elif isinstance(info, inspect.DictType) and isinstance(document, dict):
        lost, inner = [], [(info.value_type, value, f"{path}.{name}") for name, value in document.items()]
    elif isinstance(info, inspect.ListType) and isinstance(document, list):
        lost, inner = [], [(info.item_type, value, path) for value in document]
    else:
        return []
    return [*lost, *(name for each in inner for name in unknown_fields(*each))]


def test_a_value_is_found_under_its_json_key():
    move = PlanMove(queue="alert", source="n1", target="n2", points=3)
    assert convert_to_plain(move)["from"] == find_value(move, "from") == "n1"
    assert find_value(move, "source") is None and find_value(move, "__class__") is None


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(documents_of(QueueStatus), documents_of(QueueStatus), documents_of(NodeStatus))
def test_a_patch_of_documents_is_that_of_their_json(old, new, node):
    before = Snapshot(queues={"a": old, "b": new}, nodes={"n1": node}, loops={"l": LoopStatus(id=1)})
    after = replace_fields(before, seq=2, queues={"a": new, "c": old})
    patch = json.loads(encode_document(document_difference(before, after)))
    assert patch == compute_patch(convert_to_plain(before), convert_to_plain(after))
    assert without_nulls(apply_patch(convert_to_plain(before), patch)) == without_nulls(convert_to_plain(after))


def test_a_snapshot_of_an_older_weir_has_workers_at_work_as_they_were_counted_then():
    """Pages of the past show it, and pages of now while an upgrade goes on."""
    totals, host = {"workers_busy": 2, "worker_slots": 3}, {"role": "jobs", "slots": 3, "busy": 2}
    found = snapshot_of({"totals": totals, "hosts": {"jobs@a": host}})
    assert (found.totals.workers_at_work, found.hosts["jobs@a"].at_work) == (2, 2)
    newer = snapshot_of({"totals": {**totals, "workers_at_work": 0.5}})
    assert newer.totals.workers_at_work == 0.5
    assert snapshot_of({}).totals.workers_at_work is None
