"""An answer that shows a document of the processes has its fields, no fewer and no others."""

from inspect import getmembers, isclass

import msgspec
import pytest

from console.api.answer.schema import ApiAnswer
from console.api.schemas import pipeline_status, pipelines, plants, snapshot
from queues.stored_document import StoredDocument
from workers.documents import alerts, controls, hosts, loops, pipeline, queues
from workers.documents import plants as plant_documents
from workers.documents import snapshot as plant_snapshot

AREAS = (pipeline_status, pipelines, plants, snapshot)
DOCUMENTS = (alerts, controls, hosts, loops, pipeline, plant_documents, plant_snapshot, queues)


def named(modules: tuple[object, ...], kind: type) -> dict[str, type]:
    return {
        name: found
        for module in modules
        for name, found in getmembers(module, isclass)
        if issubclass(found, kind) and found is not kind
    }


SHOWN, STORED = named(AREAS, ApiAnswer), named(DOCUMENTS, StoredDocument)


@pytest.mark.parametrize("name", sorted(SHOWN.keys() & STORED.keys()))
def test_an_answer_has_the_fields_of_its_document(name):
    assert set(SHOWN[name].model_fields) == {field.name for field in msgspec.structs.fields(STORED[name])}
