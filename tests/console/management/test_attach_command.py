"""weir attach: says what stands at an address, adds it only when asked to, and takes no password."""

import json

import pytest
from django.core.management import call_command

from console.models import AuditEntry
from queues.nodes.server import free_port
from workers.documents.plants import FoundPart, FoundPlant
from workers.plants.foreign import adapters, declared
from workers.plants.foreign.kind import AdapterKind, declare_option
from workers.plants.memory import MemoryPlant
from workers.plants.models import RegisteredPlant
from workers.plants.plant import PlantUnavailable

pytestmark = pytest.mark.django_db
FOUND = FoundPlant(
    what="A broker with 2 pools of workers", said=["12 tasks wait"],
    parts=[
        FoundPart(name="mail", tasks=2, minimum=1, maximum=8),
        FoundPart(name="reports", tasks=1, fixed="its pool can't be resized"),
    ],
    needs=["events of tasks (start workers with -E)"], choices={"queue": ["mail", "reports"]},
)  # fmt: skip
SENTENCES = [
    "A broker with 2 pools of workers.", "12 tasks wait.", "Choices for queue: mail, reports.",
    "Weir can set: mail (now 2 tasks, 1 to 8).", "Weir would only observe: reports (its pool can't be resized).",
    "Required: events of tasks (start workers with -E).",
]  # fmt: skip


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """What the kind was asked to inspect; an address that says "silent" does not answer."""
    seen = []

    def inspect(address):
        seen.append(address)
        if "silent" in address.url:
            raise PlantUnavailable(f"{address.name} did not answer within 2 s.")
        return FOUND

    made = {"make": lambda address: MemoryPlant(lambda: 5.0, [], {"parse": 2}), "inspect": inspect}
    broker = AdapterKind(
        name="broker", title="A broker", schemes={"redis": 6379}, options=(declare_option("queue", "one"),), **made
    )
    page = AdapterKind(
        name="page", title="A page", schemes={}, file="text", options=(declare_option("text", "YAML"),), **made
    )
    monkeypatch.setattr(adapters, "list_kinds", lambda: {"broker": broker, "page": page})
    return seen


def attach(capsys, *words):
    status = 0
    try:
        call_command("attach", *words)
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else said.err


def test_it_says_what_stands_there_and_adds_nothing(capsys, asked):
    status, answer = attach(capsys, "broker", "redis://broker.example", "--option", "queue=mail")
    assert (status, answer["sentences"], answer["registered"]) == (0, SENTENCES, False)
    assert (answer["name"], asked[0].options) == ("broker-broker", {"queue": "mail"})
    assert not RegisteredPlant.objects.exists()
    assert AuditEntry.objects.get().action == "plant.inspect"  # a request went out


def test_with_register_it_is_added_under_a_name_and_audited(capsys, monkeypatch):
    monkeypatch.setenv("WEIR_SECRET_BROKER", "pa55word")
    words = ("broker", "redis://broker.example", "--secret", "WEIR_SECRET_BROKER", "--register")
    status, said = attach(capsys, *words)
    assert status == 2 and "Use --yes" in said and not RegisteredPlant.objects.exists()
    status, answer = attach(capsys, *words, "--yes", "--name", "shop")
    assert (status, answer["registered"]) == (0, True)
    row = RegisteredPlant.objects.get()
    assert (row.name, row.kind, row.secret_environment) == ("shop", "broker", "WEIR_SECRET_BROKER")
    assert AuditEntry.objects.get(action="plant.register").target == "shop"
    assert "pa55word" not in json.dumps(answer)


def test_a_file_is_the_option_that_it_stands_for(capsys, asked, tmp_path):
    file = tmp_path / "plant.yaml"
    file.write_text("sensors: {}")
    for words in ((str(file),), ("page", str(file))):
        assert attach(capsys, *words)[0] == 0
        assert (asked[-1].url, asked[-1].options) == ("", {"text": "sensors: {}"})
    assert attach(capsys, str(tmp_path / "gone.yaml")) == (2, "ADDRESS: " + attach_gone(tmp_path) + "\n")


def test_a_plant_that_names_itself_is_added_under_that_name_and_another_one_where_it_is_given(
    capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(adapters, "list_kinds", lambda: {"declared": declared.ADAPTER})
    file = tmp_path / "anything.yaml"
    nobody = f"http://127.0.0.1:{free_port()}/jobs"
    file.write_text(f"name: shop-mail\nsensors:\n  jobs: {{url: {nobody}, json: waiting}}\n")
    for words, name in (((), "shop-mail"), (("--name", "post"), "post")):
        status, answer = attach(capsys, str(file), "--register", "--yes", *words)
        assert status == 0, answer
        assert (answer["name"], answer["registered"]) == (name, True)
        assert RegisteredPlant.objects.get(name=name).kind == "declared"


def attach_gone(folder):
    return f"{folder / 'gone.yaml'} can't be read (No such file or directory)."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("storm", "redis://broker.example"), "kind: must be one of broker, page"),
        (("broker", "redis://me:pa55word@broker.example"), "without a username or a password"),
        (("broker", "redis://silent.example"), "url: did not answer within 2 s."),
        (("broker", "redis://broker.example", "--option", "queue"), "--option: must be name=value"),
        (("broker", "redis://broker.example", "--option", "other=x"), "other: is unknown"),
        (("broker", "redis://broker.example", "--secret", "WEIR_SECRET_GONE"), "which is not set"),
        (("broker", "redis://broker.example", "--secret", "HOME"), "secret_environment: must start with"),
    ],
)
def test_what_can_not_be_is_refused_by_name(capsys, words, said):
    status, answer = attach(capsys, *words)
    assert status == 2 and said in answer and "pa55word" not in answer


def test_the_page_says_the_same_and_registers_with_a_confirmation(browsers, stored_snapshot):
    administrator = browsers["administrator"]
    assert "redis" not in administrator.get("/plants/attach").content.decode()
    posted = {"kind": "broker", "url": "redis://broker.example", "broker.queue": "mail"}
    page = administrator.post("/plants/attach", posted).content.decode()
    assert "Weir can set: mail (now 2 tasks, 1 to 8)." in page and 'name="broker.queue">mail<' in page
    assert not RegisteredPlant.objects.exists()
    confirmed = {**posted, "name": "shop", "reason": "a test"}
    answer = administrator.post("/plants/register", confirmed, headers={"accept": "application/json"})
    assert answer.json()["ok"] and RegisteredPlant.objects.get().options == {"queue": "mail"}
    refused = administrator.post("/plants/attach", {**posted, "url": "redis://silent.example"})
    assert refused.status_code == 422 and "did not answer within 2 s" in refused.content.decode()
    answer = administrator.post(
        "/api/v1/plants/inspect",
        json.dumps({"kind": "broker", "url": "redis://b.example"}),
        content_type="application/json",
    )
    assert answer.json()["sentences"] == SENTENCES
