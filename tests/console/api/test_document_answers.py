"""An answer that shows a document of the processes has its fields, no fewer and no others."""

from inspect import getmembers, isclass

import msgspec
import pytest
from typing_extensions import is_typeddict

from common.stored_document import StoredDocument
from console.api.schemas import pipeline_status, pipelines, plants, snapshot
from workers.documents import alerts, controls, hosts, loops, pipeline, queues
from workers.documents import plants as plant_documents
from workers.documents import snapshot as plant_snapshot

AREAS = (pipeline_status, pipelines, plants, snapshot)
DOCUMENTS = (alerts, controls, hosts, loops, pipeline, plant_documents, plant_snapshot, queues)


def shown() -> dict[str, type]:
    return {name: each for area in AREAS for name, each in vars(area).items() if is_typeddict(each)}


def stored() -> dict[str, type]:
    return {
        name: each
        for module in DOCUMENTS
        for name, each in getmembers(module, isclass)
        if issubclass(each, StoredDocument) and each is not StoredDocument
    }


SHOWN, STORED = shown(), stored()


@pytest.mark.parametrize("name", sorted(SHOWN.keys() & STORED.keys()))
def test_an_answer_has_the_fields_of_its_document(name):
    fields = {field.name for field in msgspec.structs.fields(STORED[name])}
    assert SHOWN[name].__required_keys__ | SHOWN[name].__optional_keys__ == fields
