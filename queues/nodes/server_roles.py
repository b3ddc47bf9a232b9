"""The access rights at the control server and at the nodes: one user for each role, and no other users.

    python -m queues.nodes.server_roles FOLDER

writes `control.acl` and `node.acl` (a server's `aclfile`), with the digests of the passwords in the environment:
WEIR_PASSWORD_WEB, WEIR_PASSWORD_WORKERS and so on, 32 characters or more each.

| role | at the control server | at a node |
|---|---|---|
| web | reads and writes everything of Weir's | the same |
| workers (also beat and the alerter) | the same | the same |
| observer | reads everything of Weir's; writes snapshot, metrics, live channel, notes, producers | reads
gauges |
| agent | reads the topology, sends heartbeats | reads gauges, removes ended consumers, sets how to sync |
| telemetry | reads the topology, counts what it publishes | adds to the queues telemetry and process |
| pipeline | reads everything of Weir's; writes the pipeline's keys, and counts what it publishes | all queues
|
| health | PING, without a password | PING, without a password |

With WEIR_PASSWORD_REPLICA and WEIR_PASSWORD_SENTINEL the control server has replicas and sentinels. It gets the users
`replica` (follows it) and `sentinel` (monitors it and names the primary). `sentinel.acl` is then for the sentinels:
each role may query them for the primary. Nodes may have replicas as well: they get the user `replica`, and agents and
workers may choose their primaries.

Only an agent may configure its node, to sync writes. No user may save, flush, list all keys, load functions, or see
other connections.
"""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common import environment as variables
from common.errors import BadInput
from queues import keys

MIN_PASSWORD = 32
REPLICA, SENTINEL = "replica", "sentinel"
HANDSHAKE = "+auth +hello +ping +select +client|setinfo +client|setname +client|id +command|info"
SCRIPTS = "+eval +evalsha +script|load +script|exists"
ROWS = (
    f"+@read +@write +@transaction +@pubsub {SCRIPTS} +wait +waitaof "
    "-@dangerous -@admin -function -fcall -fcall_ro +info +time +watch"
)
READ = "%R~weir:*"
ALL = "~weir:*"
# Celery subscribes to its remote control by pattern, and the rule must contain that pattern literally.
REMOTE_CONTROL = f"&{keys.CELERY}/0.celery.pidbox"
# The commands of the scripts that measure a segment (queues.segments.gauge).
GAUGES = "+hget +hmget +hgetall +hlen +xlen +xpending +zcard +zcount +xrange +xrevrange +xinfo +time +info"
SYNCING = "+config|get +config|set"  # queues.nodes.write_sync
# The commands of queues.nodes.replication, if nodes have replicas, and the roles that need them.
PAIRING = f"{SYNCING} +role +dbsize +replicaof +get +set +watch +unwatch +multi +exec"
PAIRING_ROLES = ("agent", "workers")
# The keys by which a segment is measured. A script requires write access to its keys; writes stay forbidden,
# since the agent has no writing command.
MEASURED = " ".join(f"~{key.pattern}" for key in keys.OF_QUEUE)


@dataclass(frozen=True)
class ServerRole:
    """Rights in ACL syntax: keys and channels, then commands."""

    name: str
    control: str
    node: str


def read(role: str) -> str:
    """Return the keys that a role reads at the control server, by `queues.keys`."""
    return " ".join(f"%R~{key.pattern}" for key in keys.KEYS if role in key.readers and not key.on_nodes)


def list_written_keys(role: str) -> str:
    """Return the keys and channels that a role writes there, in ACL syntax."""
    own = [key for key in keys.KEYS if role in key.writers and not key.on_nodes]
    return " ".join(("&" if key.kind == "channel" else "~") + key.pattern for key in own)


def list_published_keys(role: str, *queues: str) -> str:
    """Return the keys that a role that publishes to these queues writes at a node."""
    own = [key for key in keys.OF_QUEUE if role in key.writers]
    return " ".join(f"~{key.build(queue)}" for queue in queues for key in own)


ROLES = (
    ServerRole("web", f"{ALL} &weir:* {ROWS}", f"{ALL} {ROWS}"),
    ServerRole("workers", f"{ALL} &weir:* {REMOTE_CONTROL} {ROWS}", f"{ALL} {ROWS}"),
    ServerRole("observer", f"{READ} {list_written_keys('observer')} {ROWS}", f"{READ} {GAUGES} {SCRIPTS}"),
    ServerRole(
        "agent",
        f"{read('agent')} {list_written_keys('agent')} +get +hget +hset +time",
        f"{READ} {MEASURED} ~{keys.PROMOTIONS} {GAUGES} {SCRIPTS} +xgroup|delconsumer {SYNCING}",
    ),
    ServerRole(
        "telemetry",
        f"{read('telemetry')} {list_written_keys('telemetry')} "
        f"+get +mget +pttl +hget +hgetall +hset +multi +exec {SCRIPTS}",
        f"{list_published_keys('telemetry', 'telemetry', 'process')} +xadd +hincrby +hmget +multi +exec +wait +waitaof",
    ),
    ServerRole("pipeline", f"{READ} {list_written_keys('pipeline')} {ROWS}", f"{ALL} {ROWS}"),
)


# Of a replicated control server, as its documentation recommends.
FAILING_OVER = {
    REPLICA: "+psync +replconf +ping",
    SENTINEL: "&__sentinel__:hello +multi +exec +slaveof +ping +subscribe +publish +config|rewrite +role "
    "+info +client|setname +client|kill +script|kill",
}
ASKING = "+auth +hello +ping +client|setinfo +client|setname +client|id +info +role"
ASKING_SENTINELS = f"{ASKING} +sentinel|masters +sentinel|master +sentinel|get-master-addr-by-name"
AMONG_SENTINELS = f"{ASKING} &* +subscribe +publish +sentinel"


def get_user_variable(name: str) -> str:
    """Return the environment variable with the password of a user."""
    return f"{variables.PASSWORD_PREFIX}{name.upper()}"


def format_access_list(rights: Mapping[str, str], passwords: Mapping[str, str], handshake: str = HANDSHAKE) -> str:
    """Return a server's ACL file: role → rights, role → password. The user `default` is off."""
    lines = ["user default off nopass resetkeys resetchannels -@all"]
    lines.append("user health on nopass resetkeys resetchannels -@all +ping")
    for name, right in rights.items():
        digest = hashlib.sha256(passwords[name].encode()).hexdigest()
        lines.append(f"user {name} on #{digest} resetkeys resetchannels -@all {handshake} {right}")
    return "".join(f"{line}\n" for line in lines)


def read_passwords(environment: Mapping[str, str]) -> dict[str, str]:
    """Return each role's password, and those of replicas and sentinels if one of these is set.

    Raises `BadInput` that names the variable; the password is never quoted.
    """
    passwords: dict[str, str] = {}
    fails_over = any(environment.get(get_user_variable(name)) for name in FAILING_OVER)
    for name in (*(role.name for role in ROLES), *(FAILING_OVER if fails_over else ())):
        password = environment.get(get_user_variable(name), "")
        if len(password) < MIN_PASSWORD:
            raise BadInput(get_user_variable(name), f"must have at least {MIN_PASSWORD} random characters.")
        if password in passwords.values():
            raise BadInput(get_user_variable(name), "must differ from the passwords of the other roles.")
        passwords[name] = password
    return passwords


def build_acl_files(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the files by name; `sentinel.acl` if the control server can fail over. Raises `BadInput`."""
    passwords = read_passwords(environment)
    at_control = {role.name: role.control for role in ROLES}
    rights = {role.name: role.node for role in ROLES}
    if REPLICA in passwords:
        rights |= {name: f"{rights[name]} {PAIRING}" for name in PAIRING_ROLES}
        rights[REPLICA] = FAILING_OVER[REPLICA]
    at_node = {"node.acl": format_access_list(rights, passwords)}
    if REPLICA not in passwords:
        return {"control.acl": format_access_list(at_control, passwords), **at_node}
    asking = {**{role.name: "" for role in ROLES}, SENTINEL: AMONG_SENTINELS}
    return {
        "control.acl": format_access_list({**at_control, **FAILING_OVER}, passwords),
        **at_node,
        "sentinel.acl": format_access_list(asking, passwords, ASKING_SENTINELS),
    }


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m queues.nodes.server_roles FOLDER\n")
        return 2
    try:
        made = build_acl_files(variables.PROCESS)
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for name, text in made.items():
        path = Path(arguments[0]) / name
        path.write_text(text)
        # The servers run as another user. The digest of 32 random characters reveals no password.
        path.chmod(0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
