"""The scripts that move blocks on a node, by name, and the counters that they maintain: `queues/lua/segment`.

KEYS are `keys.list_queue_keys(queue)`, ARGV[1] is the consumer group. Scripts may run on a full node (`allow-oom`): a
node that could not acknowledge could never become empty again. Those that receive from another node may not.
"""

from queues.lua.script import load_scripts

GROUP = "workers"
COUNTERS = (
    "inserted_events",
    "inserted_blocks",
    "inserted_bytes",
    "removed_events",
    "removed_blocks",
    "removed_bytes",
    "dead_events",
    # The part that was transferred between nodes: neither published nor handled.
    "received_events",
    "sent_events",
)
SCRIPTS = load_scripts("segment")
