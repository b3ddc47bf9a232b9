"""docker-compose.yml is valid, asks for its secrets, and runs the very commands that ./run supervises."""

import re
import shlex
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from console.embedded.processes import list_plant_processes
from queues.nodes.server import ServerConfig, write_config
from queues.nodes.server_roles import ROLES, get_user_variable

SECRETS = {
    "WEIR_SECRET_KEY", "WEIR_ADMIN_PASSWORD", "WEIR_SPARK_SECRET", "WEIR_DATABASE_PASSWORD",
    "WEIR_DATABASE_PASSWORD_WORKERS", "POSTGRES_PASSWORD", *(get_user_variable(role.name) for role in ROLES),
}  # fmt: skip
# What each service's work needs, and nothing else.
APPLICATION = {"WEIR_DATABASE_PASSWORD"}
WORKER_DATABASE = {"WEIR_DATABASE_PASSWORD_WORKERS"}
WORKER = WORKER_DATABASE | {"WEIR_PASSWORD_WORKERS"}
NEEDED = {
    "database": {"POSTGRES_PASSWORD"}, "access": {get_user_variable(role.name) for role in ROLES},
    "setup": {
        "POSTGRES_PASSWORD", "WEIR_DATABASE_PASSWORD", "WEIR_DATABASE_PASSWORD_WORKERS", "WEIR_ADMIN_PASSWORD",
        "WEIR_SECRET_KEY", "WEIR_PASSWORD_WEB",
    },
    "web": APPLICATION | {"WEIR_SECRET_KEY", "WEIR_PASSWORD_WEB"},
    "observer": WORKER_DATABASE | {"WEIR_PASSWORD_OBSERVER"}, "alerter": WORKER | {"WEIR_SECRET_KEY"},
    "worker-control": WORKER, "worker-jobs": WORKER, "worker-spark": WORKER | {"WEIR_SPARK_SECRET"}, "beat": WORKER,
    "telemetry": {"WEIR_PASSWORD_TELEMETRY"}, "pipeline": {"WEIR_PASSWORD_PIPELINE", "WEIR_SPARK_SECRET"},
    "spark-master": {"WEIR_SPARK_SECRET"}, "spark-worker": {"WEIR_SPARK_SECRET", "WEIR_PASSWORD_PIPELINE"},
    **{f"agent-{node}": {"WEIR_PASSWORD_AGENT"} for node in ("n1", "n2", "n3")},
    **{server: set() for server in ("proxy", "control", "n1", "n2", "n3")},
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load(COMPOSE.read_text())["services"]


def test_every_process_of_the_local_plant_is_a_service_with_the_same_command(services):
    for process in list_plant_processes(["n1", "n2", "n3"], 8, "0.0.0.0", 8000):
        command = [re.sub(r"\$\{JOB_SLOTS:-(\d+)\}", r"\1", part) for part in services[process.name]["command"]]
        assert command == list(process.command), process.name


def test_a_service_may_take_as_long_to_stop_as_its_process_of_the_local_plant(services):
    for process in list_plant_processes(["n1", "n2", "n3"], 8, "0.0.0.0", 8000):
        grace = services[process.name].get("stop_grace_period", "10s")  # Compose's own
        assert grace == f"{process.stop_seconds}s", process.name


def test_no_secret_has_a_value_in_the_file():
    text = COMPOSE.read_text()
    for name in SECRETS:
        assert f"${{{name}:?" in text, name
        assert not re.search(rf"{name}:-", text), name


def test_every_process_that_goes_on_has_a_health_check_and_a_file_where_that_reads_one(services):
    ending = {"access", "setup"}
    without = {name for name, service in services.items() if "healthcheck" not in service}
    assert without == ending | {"proxy"}
    for name in ("database", "control", "n1", "n2", "n3"):
        assert any(volume.startswith(f"{name}:") for volume in services[name]["volumes"]), "what must last"
    for name, service in services.items():
        if "/tmp/heartbeat" in str(service.get("healthcheck")):
            assert service["environment"]["WEIR_HEARTBEAT_FILE"] == "/tmp/heartbeat", name


def options_of(command):
    """{option: value} of a server's command line."""
    words = shlex.split(command)
    return {word[2:]: value for word, value in pairwise(words) if word.startswith("--")}


def test_servers_are_started_like_those_of_the_local_plant(services, tmp_path):
    lines = write_config(ServerConfig(1, tmp_path)).read_text().splitlines()
    given = dict(line.split(" ", 1) for line in lines)
    # Where it listens and lies, how much it may hold, and what it says, is each server's own.
    own = {"bind", "port", "dir", "maxmemory", "daemonize", "logfile", "loglevel"}
    wanted = {name: value.strip('"') for name, value in given.items() if name not in own}
    assert wanted["save"] == ""
    for name in ("control", "n1", "n2", "n3"):
        options = options_of(services[name]["command"][2].split("exec valkey-server")[1])
        assert {option: options.get(option) for option in wanted} == wanted, name
    manual = (ROOT / "docs/start/production.md").read_text().split("    valkey-server ")[1].split("--masteruser")[0]
    options = options_of(manual)
    # Nothing syncs beside these servers: they do it themselves, each second.
    del wanted["appendfsync"]
    assert {option: options.get(option) for option in wanted} == wanted


def test_no_service_has_a_capability_or_a_writable_root_or_can_gain_rights(services):
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert not {"privileged", "cap_add", "pid", "ipc", "devices", "userns_mode"} & set(service), name
        named = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert all(re.fullmatch("[a-z0-9]+", volume) for volume in named), f"{name} mounts of the host: {named}"


def test_no_service_runs_as_root(services):
    for name, service in services.items():
        if "build" not in service:
            assert service["user"] not in ("root", "0"), name
    users = re.findall(r"^USER (\S+)$", DOCKERFILE.read_text(), re.M)
    assert users == ["10001", "weir"]  # the proxy's stage, and Weir's


def secrets_of(service):
    return {name for name in SECRETS if re.search(rf"\$\{{{name}\b", str(service))}


def test_each_service_gets_the_secrets_of_its_own_work(services):
    assert {name: secrets_of(service) for name, service in services.items()} == NEEDED


def test_only_setup_is_the_databases_owner_and_only_web_may_write_accounts(services):
    users = {"setup": "weir", "web": "weir_application"}
    for name, service in services.items():
        url = (service.get("environment") or {}).get("DATABASE_URL")
        if url is not None:
            user = url.removeprefix("postgres://").split(":")[0]
            assert user == users.get(name, "weir_workers"), name
    assert "manage.py database_roles weir_application" in services["setup"]["command"][-1]
    assert "manage.py database_roles weir_workers --workers" in services["setup"]["command"][-1]


def test_every_login_at_the_servers_is_a_users_of_the_access_list(services):
    roles = {role.name for role in ROLES}
    for name, service in services.items():
        environment = service.get("environment") or {}
        users = {environment[key].split(":")[0] for key in ("WEIR_NODE_LOGIN",) if key in environment}
        if url := environment.get("REDIS_URL"):
            users.add(url.removeprefix("redis://").split(":")[0])
        assert users <= roles and len(users) < 2, name
        assert all(f"${{{get_user_variable(role.name)}" in str(service) for role in ROLES if role.name in users), name
    assert services["control"]["command"][3] == "control"
    for node in ("n1", "n2", "n3"):
        assert '--aclfile "/access/$$0.acl"' in services[node]["command"][2]
        assert services[node]["command"][3] == "node"


def test_an_agent_reaches_its_own_node_only_and_spark_no_database(services):
    for node in ("n1", "n2", "n3"):
        assert services[f"agent-{node}"]["networks"] == ["control", node]
    for name in ("pipeline", "spark-master", "spark-worker"):
        assert "database" not in services[name]["networks"]


def test_only_the_proxy_is_published_and_what_calls_nobody_reaches_nothing_outside(services):
    networks = yaml.safe_load(COMPOSE.read_text())["networks"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert services["proxy"]["networks"] == ["proxy"]
    beside = [name for name, service in services.items() if "proxy" in service.get("networks", [])]
    assert beside == ["web", "proxy"]  # WEIR_TRUSTED_PROXIES names this network
    outward = {
        name
        for name, service in services.items()
        for network in service.get("networks", [])
        if not (networks[network] or {}).get("internal")
    }
    assert outward == {"proxy", "web", "observer", "alerter", "worker-control", "worker-jobs"}
    assert services["access"]["network_mode"] == "none"


def test_every_image_has_an_exact_tag_and_can_be_pinned_by_digest(services):
    images = {service["image"] for service in services.values() if "build" not in service}
    arguments = [service["build"]["args"] for service in services.values() if "build" in service]
    builds = {item for each in arguments for item in each.items()}
    assert {name for name, _ in builds} == {"PYTHON_IMAGE", "CADDY_IMAGE"}
    for image in images | {image for _, image in builds}:
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z/]+:\d+\.\d+[.\d]*(-[a-z]+)+\}", image), image
    for name, image in builds:
        assert f"ARG {name}={image.split(':-')[1].rstrip('}')}" in DOCKERFILE.read_text()


def test_the_image_has_no_development_packages_no_installer_and_no_secret_files():
    text = DOCKERFILE.read_text()
    _proxy, packages, sources, image = text.split("\nFROM ")[1:]
    assert "--require-hashes -r /requirements-uv.lock" in packages
    assert re.search(r"uv pip install --no-cache .*--python /opt/weir/bin/python --require-hashes", packages)
    assert "--compile-bytecode" in packages and "compileall" in image
    # Also of a checkout that only its owner reads.
    assert "chmod -R u=rwX,go=rX /srv/weir" in sources and "COPY --from=sources /srv/weir ." in image
    assert "requirements-dev" not in text
    assert "uv" not in re.findall(r"\w+", image.split("COPY", 1)[0]) and "pip uninstall -y pip" in image
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".env*", "plants.env", ".weir", ".git", "tests"} <= set(ignored)


def test_the_secrets_of_compose_are_random_private_and_kept(tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("bin/compose-secrets", ".env.example"):
        shutil.copy(ROOT / name, tmp_path / name)
    written = []
    for _ in range(2):
        subprocess.run([str(tmp_path / "bin/compose-secrets")], check=True, capture_output=True)
        written.append((tmp_path / ".env").read_text())
    assert written[0] == written[1]
    values = dict(line.split("=", 1) for line in written[0].splitlines() if "=" in line and line[0] != "#")
    assert set(values) >= SECRETS and len({values[name] for name in SECRETS}) == len(SECRETS)
    assert all(re.fullmatch("[0-9a-f]{64}", values[name]) for name in SECRETS)
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    assert {path.name for path in tmp_path.iterdir()} == {"bin", ".env", ".env.example"}
