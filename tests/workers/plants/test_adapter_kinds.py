"""Kinds of attached plants: found because they exist; the declaration of each checks its registrations."""

import re
from pathlib import Path

import pytest

from common.errors import BadInput
from workers.host import egress
from workers.plants.foreign import adapters
from workers.plants.foreign.answer_limit import answer_seconds, compute_stale_seconds, order_seconds, round_seconds
from workers.plants.foreign.client import PlantClient
from workers.plants.foreign.kind import Adapter, AdapterKind, PlantAddress, declare_option
from workers.plants.memory import MemoryPlant
from workers.plants.models import RegisteredPlant


class Small(MemoryPlant, Adapter):
    """A plant that records in `closed` whether its client was closed."""

    closed = 0

    def __init__(self):
        super().__init__(lambda: 5.0, [], {"parse": 2})

    def close(self):
        Small.closed += 1


BROKER = AdapterKind(
    name="broker",
    title="A broker",
    schemes={"redis": 6379, "amqp": 5672},
    ports=frozenset({26379}),
    options=(
        declare_option("app", "its name", required=True),
        declare_option("mode", "how", choices=("one", "two")),
        declare_option("page", "of YAML", most=20_000, many_lines=True),
    ),
    make=lambda address: Small(),
)


def registration(**given):
    made = {"name": "desk", "kind": "broker", "url": "redis://broker.example", "options": {"app": "shop"}}
    return RegisteredPlant(**made | given)


@pytest.fixture
def broker(monkeypatch):
    known = {**adapters.list_kinds(), "broker": BROKER}
    monkeypatch.setattr(adapters, "list_kinds", lambda: known)


def test_no_adapter_imports_another():
    folder = Path(adapters.__file__).parent
    declaring = [file for file in folder.glob("**/*.py") if re.search(r"^ADAPTER = ", file.read_text(), re.M)]
    names = {file.stem if file.parent == folder else file.parent.name for file in declaring}
    assert len(names) == len(adapters.list_kinds())
    for name in names:
        for file in [folder / f"{name}.py", *(folder / name).glob("**/*.py")]:
            imported = re.findall(r"workers\.plants\.foreign\.(\w+)", file.read_text()) if file.exists() else []
            assert not (names - {name}).intersection(imported), file


def test_a_plant_of_a_kind_of_an_earlier_version_names_its_replacement():
    for kind, said in (("prometheus", "declared plant with PromQL sensors"), ("heron", "Remove this plant")):
        with pytest.raises(BadInput, match=said):
            adapters.create_adapter(registration(kind=kind, options={}))


def test_a_kind_of_its_own_scheme_takes_its_own_port_and_no_other_service(broker, settings):
    settings.WEIR_EGRESS_ALLOW = ""
    for url in ("redis://broker.example", "amqp://broker.example:5672/", "redis://broker.example:26379/0"):
        adapters.check(registration(url=url))
    for url in (
        "http://broker.example",
        "redis://broker.example:5432",
        "amqp://broker.example:6379",
        "redis://127.0.0.1:6379",
        "redis://169.254.169.254:6379",
        "redis://user:secret@broker.example",
        "redis://broker.example?password=x",
        "",
    ):
        with pytest.raises(BadInput) as refused:
            adapters.check(registration(url=url))
        assert refused.value.field == "url", url
    with pytest.raises(BadInput, match="port"):
        egress.check_url("http://broker.example:6379/")  # what is allowed for one protocol is not allowed for another


def test_options_are_checked_by_what_their_kind_says_of_them(broker):
    adapters.check(registration(options={"app": "shop", "mode": "two", "page": "x" * 20_000}))
    for options, field in (
        ({}, "app"),
        ({"app": ""}, "app"),
        ({"app": "shop", "mode": "three"}, "mode"),
        ({"app": "x" * 201}, "app"),
        ({"app": 5}, "app"),
        ({"app": "shop", "other": "x"}, "other"),
    ):
        with pytest.raises(BadInput) as refused:
            adapters.check(registration(options=options))
        assert refused.value.field == field


KUBERNETES = {"kind": "kubernetes", "url": "https://k8s.example"}
KAFKA = {"kind": "kafka", "url": "kafka://broker.example:9092"}
WORKLOADS = ("", "parse, parse", "../secrets", "daemonset/parse", "outside")
WRONG = [
    *(({"name": name}, "name") for name in ("main", "East Side")),
    ({"url": "http://east/?token=x"}, "url"),
    ({"kind": "storm"}, "kind"),
    ({"secret_environment": "the token itself"}, "secret_environment"),
    ({"options": {"job": "x"}}, "job"),
    ({"kind": "flink", "options": {"job": 5}}, "job"),
    ({"kind": "celery", "url": "redis://broker.example", "options": {"lag": "celery@one"}}, "lag"),
    ({**KAFKA, "options": {"mechanism": "PLAIN"}}, "user"),
    *(({**KAFKA, "options": {"brokers": text}}, "brokers") for text in ("b:99999999", "b:9092,:1")),
    *(({**KUBERNETES, "options": {"workloads": text}}, "workloads") for text in WORKLOADS),
    ({**KUBERNETES, "options": {"workloads": "parse", "minimum": "-1"}}, "minimum"),
    ({**KUBERNETES, "options": {"workloads": "parse", "minimum": "5", "maximum": "4"}}, "minimum"),
    ({**KUBERNETES, "options": {"workloads": "parse", "maximum": "many"}}, "maximum"),
    ({**KUBERNETES, "options": {"workloads": "parse", "namespace": "a/b"}}, "namespace"),
]


@pytest.mark.parametrize(("given", "field"), WRONG)
def test_a_registration_that_cannot_be_is_refused_by_name(given, field):
    with pytest.raises(BadInput) as refused:
        adapters.check(RegisteredPlant(**{"name": "east", "kind": "weir", "url": "http://east"} | given))
    assert refused.value.field == field


def test_a_kind_without_schemes_takes_no_address(monkeypatch):
    kind = AdapterKind(name="page", title="A page", schemes={}, make=BROKER.make)
    monkeypatch.setattr(adapters, "list_kinds", lambda: {"page": kind})
    adapters.check(registration(kind="page", url="", options={}))
    with pytest.raises(BadInput, match="must be empty"):
        adapters.check(registration(kind="page", url="http://page.example", options={}))


def test_what_stands_at_an_address_is_said_in_words_and_its_line_is_closed():
    before = Small.closed
    found = BROKER.run_inspection(PlantAddress(name="desk", url="redis://broker.example"))
    assert (found.what, Small.closed) == ("A broker", before + 1)
    assert {part.name: (part.tasks, part.fixed) for part in found.parts}["parse"] == (2, None)


@pytest.mark.django_db
def test_loops_are_made_only_where_something_can_be_set(monkeypatch):
    watched = AdapterKind(name="watched", title="Only watched", make=BROKER.make, steers=False)
    known = {"watched": watched, "broker": BROKER}
    monkeypatch.setattr(adapters, "list_kinds", lambda: known)
    registration(name="desk").save()
    registration(name="seen", kind="watched", url="http://seen.example").save()
    registration(name="gone", kind="of-last-year", url="http://gone.example").save()
    assert [row.name for row in adapters.list_steerable_adapters()] == ["desk"]
    assert adapters.get_title("of-last-year") == "of-last-year"


def test_a_connection_of_any_protocol_goes_only_where_the_policy_lets_it(settings, unused_tcp_port):
    settings.WEIR_EGRESS_ALLOW = ""
    with pytest.raises(OSError, match="loopback"):
        egress.connect("127.0.0.1", unused_tcp_port, 0.1)
    with pytest.raises(OSError, match="port"):
        egress.connect("10.1.2.3", 6379, 0.1)
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    with pytest.raises(ConnectionRefusedError):
        egress.connect("127.0.0.1", unused_tcp_port, 0.5)
    with pytest.raises(egress.AddressRefused, match="leads to 169"):
        egress.resolve_allowed_addresses("two.example", 8080, lambda *_: ["10.1.2.3", "169.254.169.254"])


def test_a_secret_is_sent_as_the_plant_takes_it():
    sent = []
    for user in ("", "weir"):
        client = PlantClient("desk", "http://desk.example", "s3cret", user=user)
        sent.append(client._client.headers["Authorization"])
        client.close()
    assert sent == ["Bearer s3cret", "Basic d2VpcjpzM2NyZXQ="]
    assert "s3cret" not in repr(PlantAddress(name="desk", url="http://desk.example", secret="s3cret"))


def test_an_order_may_take_longer_and_what_was_seen_is_old_later(monkeypatch):
    monkeypatch.delenv("WEIR_PLANT_TIMEOUT_SECONDS")
    assert (answer_seconds(), round_seconds(), order_seconds(), compute_stale_seconds()) == (2.0, 4.0, 8.0, 6.0)
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "5")
    assert (answer_seconds(), round_seconds(), order_seconds(), compute_stale_seconds()) == (5.0, 10.0, 20.0, 15.0)


@pytest.mark.parametrize("text", ["0", "10.5", "3600", "nan", "2 s"])
def test_a_limit_that_would_keep_loops_waiting_is_refused_by_name(text, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", text)
    with pytest.raises(BadInput, match=r"WEIR_PLANT_TIMEOUT_SECONDS: must be 0\.1 to 10 s,"):
        answer_seconds()
