"""Celery apps as their owners configure them: addresses, passwords and transport options."""

import json

import pytest

from common.errors import BadInput
from workers.plants.foreign import adapters
from workers.plants.foreign.celery_app import ADAPTER, broker
from workers.plants.foreign.celery_app.broker import AmqpBroker, RedisBroker, create_app
from workers.plants.foreign.celery_app.transport import find_binding_separators, read_layout
from workers.plants.foreign.kind import PlantAddress

USUAL = "\x06\x16"


@pytest.fixture(autouse=True)
def no_name_is_resolved(monkeypatch):
    monkeypatch.setattr(broker, "resolve_host", lambda host, *_: host)


def address_of(url, secret="", **options):
    return PlantAddress(name="shop", url=url, options=options, secret=secret)


def redis_of(**options):
    return address_of("redis://broker.example/5", **options)


def channel_options(address):
    return create_app(address).connection().transport_options


DECLARED = {
    "sep": ":",
    "priority_steps": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    "queue_order_strategy": "priority",
    "global_keyprefix": "shop-",
    "fanout_prefix": "/shop.",
    "fanout_patterns": False,
    "visibility_timeout": 43_200,
    "unacked_key": "shop-unacked",
}


def test_a_copied_declaration_reaches_kombu_and_the_counting_of_lists():
    address = redis_of(transport_options=json.dumps(DECLARED))
    ADAPTER.check(address)
    options, layout = channel_options(address), read_layout(address)
    shared = ("sep", "global_keyprefix", "fanout_prefix", "fanout_patterns", "unacked_key")
    assert {name: options[name] for name in shared} == {name: DECLARED[name] for name in shared}
    assert options["follows_separator"] is False
    assert layout.unacknowledged == "shop-shop-unacked"
    assert layout.list_queue_keys("mail")[:3] == [(0, "shop-mail"), (1, "shop-mail:1"), (2, "shop-mail:2")]
    assert len(layout.list_queue_keys("mail")) == 10


@pytest.mark.parametrize(
    ("options", "sep", "follows", "lists"),
    [
        ({}, USUAL, True, [f"q{USUAL}3", "q:3"]),
        ({"separator": "any"}, USUAL, True, [f"q{USUAL}3", "q:3"]),
        ({"separator": "usual"}, USUAL, False, [f"q{USUAL}3"]),
        ({"separator": ":"}, ":", False, ["q:3"]),
        ({"transport_options": '{"sep": "|"}'}, "|", False, ["q|3"]),
        ({"separator": "any", "transport_options": '{"sep": ":"}'}, ":", False, ["q:3"]),
    ],
)
def test_the_separator_of_kombu_is_the_separator_of_the_lists(options, sep, follows, lists):
    address = redis_of(**options)
    made, layout = channel_options(address), read_layout(address)
    assert (made["sep"], made["follows_separator"]) == (sep, follows)
    assert [key for priority, key in layout.list_queue_keys("q") if priority == 3] == lists


NO_OPTIONS = ["sep=:", '["sep"]', '{"sep": ""}', '{"sep": 7}', '{"seperator": ":"}', '{"fanout_patterns": "no"}']
NO_OPTIONS += ['{"fanout_prefix": 1}', '{"priority_steps": [0, 12]}', '{"priority_steps": [true]}', "[" * 1_500]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"separator": ":", "transport_options": '{"sep": "|"}'}, "separator"),
        ({"prefix": "a-", "transport_options": '{"global_keyprefix": "b-"}'}, "prefix"),
        *(({"transport_options": text}, "transport_options") for text in NO_OPTIONS),
    ],
)
def test_a_declaration_that_can_not_be_is_refused_by_the_option_s_name(options, field):
    with pytest.raises(BadInput) as refused:
        ADAPTER.check(redis_of(**options))
    assert refused.value.field.partition(".")[0] == field


def test_options_of_redis_are_refused_for_rabbitmq():
    with pytest.raises(BadInput, match="Redis only"):
        ADAPTER.check(address_of("amqp://rabbit.example", transport_options='{"sep": ":"}'))


@pytest.mark.parametrize(
    ("bindings", "separators"),
    [
        ([f"{USUAL}{USUAL}celery@one.celery.pidbox"], [USUAL]),
        ([b"::celery@one.celery.pidbox", b"::celery@two.celery.pidbox"], [":"]),
        (["||celery@one.celery.pidbox"], ["|"]),
        (["::::celery@one.celery.pidbox"], ["::"]),
        (["::a", f"{USUAL}{USUAL}b", "::c"], [":", USUAL]),
        (["celery@one"], []),
        ([], []),
    ],
)
def test_a_worker_s_own_binding_shows_its_separator(bindings, separators):
    assert find_binding_separators(bindings) == separators


HOSTS = (
    ("amqp://rabbit.example", "/"),
    ("amqp://rabbit.example/", "/"),
    ("amqp://rabbit.example/prod", "prod"),
    ("amqp://rabbit.example//prod", "/prod"),
    ("amqp://rabbit.example/%2Fprod", "/prod"),
    ("amqp://rabbit.example/%2F", "/"),
    ("amqp://rabbit.example//", "/"),
    ("amqp://rabbit.example/prod/", "prod/"),
    ("amqp://rabbit.example/a/b", "a/b"),
    ("amqps://rabbit.example:5671//eu/prod", "/eu/prod"),
)


@pytest.mark.parametrize(("url", "virtual_host"), HOSTS)
def test_a_virtual_host_is_read_as_kombu_reads_it_by_every_client(url, virtual_host):
    """By the broker's own protocol, and where the management plugin is asked."""
    address = address_of(url, management="http://rabbit.example:15672")
    adapters.check_url(url, ADAPTER)
    app = create_app(address)
    assert app.connection().virtual_host == virtual_host
    assert AmqpBroker(address, app)._host == virtual_host


@pytest.mark.parametrize(
    ("path", "database"), [("", 0), ("/", 0), ("/0", 0), ("/5", 5), ("//5", 5), ("/%35", 5), ("/015", 15)]
)
def test_a_database_is_the_same_for_both_clients(path, database):
    address = address_of(f"redis://broker.example{path}")
    ADAPTER.check(address)
    assert int(create_app(address).connection().virtual_host) == database
    assert RedisBroker(address).server.connection_pool.connection_kwargs["db"] == database


@pytest.mark.parametrize("path", ["/prod", "/1/2", "/-1", "/1a", "/999999", "///1"])
def test_what_is_no_number_of_a_database_is_refused(path):
    with pytest.raises(BadInput) as refused:
        ADAPTER.check(address_of(f"redis://broker.example{path}"))
    assert refused.value.field == "url"


@pytest.mark.parametrize("query", ["?protocol=3", "?ssl_cert_reqs=required", "?virtual_host=1", "?"])
@pytest.mark.parametrize("scheme", ["redis", "rediss", "amqp"])
def test_a_query_in_an_address_is_refused_by_name(scheme, query):
    """It would else be read as a part of the database's name, or be lost."""
    url = f"{scheme}://broker.example/1{query}"
    if query == "?":
        adapters.check_url(url, ADAPTER)
        return
    with pytest.raises(BadInput, match="must not contain a password or a query") as refused:
        adapters.check_url(url, ADAPTER)
    assert refused.value.field == "url"


SECRETS = ("p@ss/w?rd#% ä", "a:b", "%41", "+ +", "[::1]", "\\\"'", "日本")


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("scheme", ["redis", "rediss", "amqp", "amqps"])
def test_a_password_with_signs_reaches_every_client_unchanged(scheme, secret):
    address = address_of(f"{scheme}://broker.example/1", secret=secret)
    connection = create_app(address).connection()
    assert connection.password == secret
    assert (connection.hostname, connection.virtual_host) == ("broker.example", "1")
    if scheme.startswith("redis"):
        assert RedisBroker(address).server.connection_pool.connection_kwargs["password"] == secret
