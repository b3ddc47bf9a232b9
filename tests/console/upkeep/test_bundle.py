"""manage.py doctor --bundle: what somebody who helps needs to see, and no secret."""

import json
import zipfile
from urllib.parse import quote

import orjson
import pytest
from django.core.management import CommandError, call_command

from common import environment as variables
from console.upkeep import bundle
from tests.console.conftest import PASSWORD

pytestmark = pytest.mark.django_db
SECRET = "the-word-that-nobody-may-read"


@pytest.fixture(autouse=True)
def data(tmp_path, settings, monkeypatch):
    settings.WEIR_DATA = tmp_path
    monkeypatch.setitem(variables.PROCESS, "WEIR_AUDIT_KEY", SECRET)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "web.log").write_text(
        f"connected to redis://web:{SECRET}@control:6379/0\nAuthorization: Bearer weir_{'x' * 40}\n" * 3
    )
    (tmp_path / "local.json").write_text(orjson.dumps({"password": "local-pass-word", "ports": {}}).decode())
    (tmp_path / "logs" / "n1.log").write_text("requirepass local-pass-word\n")
    return tmp_path


def parts_of(path):
    with zipfile.ZipFile(path) as found:
        return {name: found.read(name).decode() for name in found.namelist()}


def test_it_holds_every_part_and_no_secret(data, plant_topology, stored_snapshot, people, settings):
    path = data / "weir.zip"
    done = bundle.make(path)
    parts = parts_of(path)
    assert set(parts) == {*(f"{name}.json" for name in bundle.PARTS), "logs/n1.log", "logs/web.log", "left-out.json"}
    assert done["left_out"] == {}
    whole = "".join(parts.values())
    for secret in (SECRET, "local-pass-word", "x" * 40, settings.SECRET_KEY, PASSWORD):
        assert secret not in whole
    assert "WEIR_AUDIT_KEY" in parts["environment.json"]
    assert set(orjson.loads(parts["servers.json"])) == {"control", "n1", "n2", "n3"}
    assert orjson.loads(parts["snapshot.json"])["nodes"]
    assert path.stat().st_mode & 0o077 == 0


def test_what_cannot_be_made_is_named_and_the_rest_is_there(data, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    done = bundle.make(data / "weir.zip")
    assert {"servers", "snapshot"} <= set(done["left_out"])
    assert {"doctor.json", "versions.json", "logs/web.log"} <= set(parts_of(data / "weir.zip"))


def test_a_disk_that_is_full_leaves_no_half_of_a_file_and_the_next_try_may_have_its_name(data, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(zipfile.ZipFile, "writestr", full)
        with pytest.raises(CommandError, match=r"can't be written \(No space left on device\)"):
            call_command("doctor", "--bundle", str(data / "weir.zip"))
    assert not [path for path in data.iterdir() if "weir.zip" in path.name]
    call_command("doctor", "--bundle", str(data / "weir.zip"))
    assert "left-out.json" in parts_of(data / "weir.zip")


def test_a_long_log_is_cut_between_its_lines_so_that_no_half_of_a_secret_is_in_it(data):
    half = f"{SECRET[-8:]}\n"
    rest = "y" * (bundle.LOG_BYTES - len(half))
    (data / "logs/web.log").write_text(f"redis://web:{SECRET[:-8]}{half}{rest}")
    bundle.make(data / "weir.zip")
    assert parts_of(data / "weir.zip")["logs/web.log"] == rest


@pytest.mark.parametrize("secret", ['pa"ss\\word-very-long', "p@ss/wörd very:long", "päss-word-very-long"])
def test_a_secret_is_hidden_however_json_or_an_address_writes_it(secret, monkeypatch):
    monkeypatch.setitem(variables.PROCESS, "WEIR_AUDIT_KEY", "")
    coded = quote(secret, safe="")
    for name, value in (
        ("WEIR_SPARK_SECRET", secret),
        ("WEIR_SMTP_URL", f"smtp://user:{secret}@mail:587"),
        ("WEIR_SMTP_URL", f"smtp://user:{coded}@mail:587"),
    ):
        with monkeypatch.context() as by:
            by.setitem(variables.PROCESS, name, value)
            for said in (
                secret,
                orjson.dumps({"message": f"could not log in with {secret}"}).decode(),
                json.dumps([secret]),
                f"POST https://host/{coded}/x?key={coded.lower()} {quote(secret)}",
            ):
                left = bundle.clean(said)
                assert "very" not in left and "long" not in left, (name, said, left)


@pytest.mark.parametrize(
    "said",
    [
        'sent {"token": "abcdefgh", "n": 1}',
        "Authorization: Basic abcdefgh==",
        "{'Authorization': 'Bearer abcdefgh', 'n': 1}",
        "api_key=abcdefgh&n=1",
    ],
)
def test_what_is_named_as_a_secret_is_hidden_also_where_a_log_of_json_quotes_it(said):
    assert "abcdefgh" not in bundle.clean(said)
    line = bundle.clean(json.dumps({"message": said, "level": "INFO"}))
    assert "abcdefgh" not in line and json.loads(line)["level"] == "INFO"
