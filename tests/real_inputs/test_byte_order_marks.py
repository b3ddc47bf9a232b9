"""Windows and spreadsheets put a byte order mark in front of a text: every reader takes it."""

import codecs
import gzip
from contextlib import closing

import httpx
import pytest

from common.documents import decode_text, parse_json, read_json
from common.environment import read_secret
from console.input.boundary import document_of
from workers.lab.trace_files import read_trace
from workers.pipeline.rules.reference import ReferenceTable
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.declared.declaration import parse_declaration
from workers.plants.foreign.declared.declared_plant import DeclaredPlant
from workers.plants.foreign.declared.sources import PrometheusClient

MARKS = {
    "none": lambda text: text.encode(),
    "utf-8": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16-le": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16-be": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}
marked = pytest.mark.parametrize("encode", MARKS.values(), ids=MARKS)


def sensor(source, answer=b""):
    text = f"name: one\nsensors:\n  it: {source}\n"
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=answer))
    with closing(DeclaredPlant(parse_declaration(text), {}, transport)) as plant:
        plant.get_topology()
        return plant.get_sensor_statuses()["it"]


@marked
def test_a_sensor_reads_json_over_http(encode):
    found = sensor("{url: 'http://shop/stats', json: queue}", encode('{"queue": 5, "ratio": NaN}'))
    assert (found.value, found.error) == (5.0, None)


@marked
def test_a_sensor_reads_a_number_and_json_in_a_file(encode, tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_FILES", str(tmp_path))
    number, document = tmp_path / "number", tmp_path / "document"
    number.write_bytes(encode("12\r\n"))
    document.write_bytes(encode('{"queue": 7}\r\n'))
    found = sensor(f"{{file: {number}}}")
    assert (found.value, found.error) == (12.0, None)
    assert sensor(f"{{file: {document}, json: queue}}").value == 7.0


@marked
def test_other_servers_answers_are_read(encode):
    answer = '{"status": "success", "data": {"resultType": "scalar", "result": [1, "5"]}}'
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=encode(answer)))
    with closing(PlantClient("p", "http://p", transport=transport)) as client:
        assert PrometheusClient(client).query_value("x") == 5.0


@marked
def test_documents_of_the_api_and_the_commands_are_read(encode, tmp_path):
    body = encode('{"name": "schön"}')
    assert document_of(body) == read_json(body) == parse_json(body) == {"name": "schön"}
    assert decode_text(encode("name: schön")) == "name: schön"


@marked
@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz"])
def test_a_trace_is_read(encode, name, tmp_path):
    content = encode("events\r\n3\r\n4\r\n")
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_trace(str(path), "events")) == [3.0, 4.0]


@marked
def test_a_reference_table_is_read(encode, tmp_path):
    path = tmp_path / "sites.csv"
    path.write_bytes(encode("id,city\r\na,Köln\r\n"))
    assert ReferenceTable.open(path, "id", ("city",), "rules[0].table") is not None


def test_a_secret_that_was_read_of_a_file_is_without_it():
    assert read_secret("WEIR_SECRET_X", {"WEIR_SECRET_X": "\ufeffhunter2"}) == "hunter2"
