"""docker-compose.yml is valid, asks for its secrets, and runs the very commands that ./run supervises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from console.processes import plant_processes

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "docker-compose.yml"


@pytest.fixture(scope="module")
def services() -> dict:
    return yaml.safe_load(COMPOSE.read_text())["services"]


def test_the_file_is_valid_under_the_compose_schema():
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(COMPOSE),
    ]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout


def test_every_process_of_the_local_plant_is_a_service_with_the_same_command(services):
    for process in plant_processes(["n1", "n2", "n3"], 8, "0.0.0.0", 8000):
        command = [
            re.sub(r"\$\{JOB_SLOTS:-(\d+)\}", r"\1", part) for part in services[process.name]["command"]
        ]
        assert command == list(process.command), process.name


def test_no_secret_has_a_value_in_the_file():
    text = COMPOSE.read_text()
    for name in ("WEIR_SECRET_KEY", "WEIR_ADMIN_PASSWORD", "POSTGRES_PASSWORD", "REDIS_PASSWORD"):
        assert f"${{{name}:?" in text
        assert not re.search(rf"{name}:-", text)


def test_servers_and_page_have_health_checks_and_what_must_last_has_a_volume(services):
    for name in ("database", "control", "n1", "n2", "n3"):
        assert services[name]["healthcheck"]["test"]
        assert any(volume.startswith(f"{name}:") for volume in services[name]["volumes"])
    assert services["web"]["healthcheck"]["test"]


def test_nodes_keep_what_they_acknowledged_and_refuse_rather_than_evict(services):
    for name in ("n1", "n2", "n3"):
        command = services[name]["command"]
        assert command[command.index("--appendonly") + 1] == "yes"
        assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
