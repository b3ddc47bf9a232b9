"""The Lua scripts that move blocks on a node. Each is one step for everybody else.

KEYS are `keys.of_queue(queue)`, ARGV[1] the consumer group. Scripts may run on a full node (`allow-oom`): a
node that could not acknowledge could never become empty again. Those that receive from another may not.
"""

GROUP = "workers"
COUNTERS = (
    "inserted_events",
    "inserted_blocks",
    "inserted_bytes",
    "removed_events",
    "removed_blocks",
    "removed_bytes",
    "dead_events",
    # Of these, what was transferred between nodes: neither published nor handled.
    "received_events",
    "sent_events",
)


_HEAD = """#!lua flags=allow-oom
local stream, counters, retry, dead, leaving, received = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group = ARGV[1]
local function fields(entry)
  local found = {}
  for i = 1, #entry[2], 2 do found[entry[2][i]] = entry[2][i + 1] end
  return found
end
-- A number of an entry; 0 where somebody else wrote something else: no entry may stop what comes behind it.
local function count(text)
  local number = tonumber(text)
  if not number or number ~= math.floor(number) or number < 0 or number > 2^53 then return 0 end
  return number
end
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function grouped()
  -- Answers BUSYGROUP when it is there already.
  redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
end
-- Removes one entry and counts it, if it is still there: whoever comes second counts nothing.
local function remove(id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  redis.pcall('XACK', stream, group, id)
  redis.call('ZREM', retry, id)
  if not entry then return 0, 0 end
  redis.call('XDEL', stream, id)
  local got = fields(entry)
  local n, bytes = count(got.n), #(got.d or '')
  redis.call('HINCRBY', counters, 'removed_events', n)
  redis.call('HINCRBY', counters, 'removed_blocks', 1)
  redis.call('HINCRBY', counters, 'removed_bytes', bytes)
  return n, 1
end
"""
# A full node takes nothing from others.
_REFUSING_HEAD = _HEAD.replace(" flags=allow-oom", "")
_REFUSING = ("receive", "receive_letter")

# The letter of an id as it was shown, else nothing and why: 0 gone, -1 changed.
_LETTERS = """
local function shown(id, digest)
  local entry = redis.call('XRANGE', dead, id, id)[1]
  if not entry then return nil, 0 end
  local got = fields(entry)
  got.e, got.n, got.t = got.e or '', count(got.n), count(got.t)
  if redis.sha1hex(got.e) ~= digest then return nil, -1 end
  return got
end
"""

SCRIPTS = {
    name: (_REFUSING_HEAD if name in _REFUSING else _HEAD) + body
    for name, body in {
        # worker, limit in events, idle in ms
        "reclaim": """
grouped()
local worker, limit, idle = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, events, now = {}, 0, now_ms()
local function take(id)
  local tries = redis.call('XPENDING', stream, group, id, id, 1)
  local entry = redis.call('XCLAIM', stream, group, worker, 0, id)[1]
  redis.call('ZREM', retry, id)
  if not entry or not entry[2] then return end
  found[#found + 1] = {id, entry[2], (tries[1] and tries[1][4] or 0) + 1}
  events = events + count(fields(entry).n)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', retry, '-inf', now, 'LIMIT', 0, 1000)) do
  if events >= limit then break end
  take(id)
end
local from, left = '-', 20
while events < limit and left > 0 do
  local pending = redis.call('XPENDING', stream, group, 'IDLE', idle, from, '+', 100)
  for _, each in ipairs(pending) do
    -- A block that waits for its retry, or is being transferred, is idle, but not abandoned.
    local kept = redis.call('ZSCORE', retry, each[1]) or redis.call('HEXISTS', leaving, each[1]) == 1
    if events < limit and not kept then take(each[1]) end
    from = '(' .. each[1]
  end
  left = #pending < 100 and 0 or left - 1
end
local count = redis.call('HMGET', counters, 'inserted_events', 'removed_events')
local waiting = (tonumber(count[1]) or 0) - (tonumber(count[2]) or 0)
return {found, waiting, redis.call('XLEN', stream)}
""",
        # worker, ids
        "keep_alive": """
local held = {}
for i = 3, #ARGV do
  -- Only what is still this worker's: a worker that was paused must not steal its entry back.
  local mine = redis.pcall('XPENDING', stream, group, ARGV[i], ARGV[i], 1, ARGV[2])
  if mine[1] and mine[1][1] == ARGV[i] then
    redis.call('XCLAIM', stream, group, ARGV[2], 0, ARGV[i], 'JUSTID')
    held[#held + 1] = ARGV[i]
  end
end
return held
""",
        # ids
        "acknowledge": """
local events, blocks = 0, 0
for i = 2, #ARGV do
  local n, one = remove(ARGV[i])
  events, blocks = events + n, blocks + one
end
return {events, blocks}
""",
        # id, delay in ms
        "retry": """
-- The entry moves to a consumer of its own, so that the worker that ends holds nothing; tries are kept.
local moved = redis.pcall('XCLAIM', stream, group, 'retry', 0, ARGV[2], 'JUSTID')
if moved.err or #moved == 0 then return 0 end
redis.call('ZADD', retry, now_ms() + tonumber(ARGV[3]), ARGV[2])
return 1
""",
        # id, worker, tries, block, then per letter: batch, error, events, newest time
        "bury": """
local events, blocks = remove(ARGV[2])
if blocks == 0 then return {0, 0} end
for i = 6, #ARGV, 4 do
  redis.call('XADD', dead, '*', 'e', ARGV[i], 'error', ARGV[i + 1], 'n', ARGV[i + 2], 't', ARGV[i + 3],
    'tries', ARGV[4], 'worker', ARGV[3], 'block', ARGV[5])
  redis.call('HINCRBY', counters, 'dead_events', ARGV[i + 2])
end
return {events, blocks}
""",
        # triples of dead id, digest as it was shown, new block id
        "requeue": _LETTERS
        + """
local moved = {}
for i = 2, #ARGV, 3 do
  local got, why = shown(ARGV[i], ARGV[i + 1])
  if got then
    local n, t = string.format('%.0f', got.n), string.format('%.0f', got.t)
    redis.call('XADD', stream, '*', 'i', ARGV[i + 2], 'n', n, 't', t, 'd', got.e)
    redis.call('XDEL', dead, ARGV[i])
    redis.call('HINCRBY', counters, 'inserted_events', n)
    redis.call('HINCRBY', counters, 'inserted_blocks', 1)
    redis.call('HINCRBY', counters, 'inserted_bytes', #got.e)
  end
  moved[#moved + 1] = got and math.max(1, got.n) or why
end
return moved
""",
        # pairs of dead id and digest as it was shown
        "discard": _LETTERS
        + """
local gone = {}
for i = 2, #ARGV, 2 do
  local got, why = shown(ARGV[i], ARGV[i + 1])
  if got then redis.call('XDEL', dead, ARGV[i]) end
  gone[#gone + 1] = got and math.max(1, got.n) or why
end
return gone
""",
        # dead id, digest as it was shown, then the events in its place: batch, count, newest time
        "amend": _LETTERS
        + """
local got, why = shown(ARGV[2], ARGV[3])
if not got then return why end
local since = got.since or string.match(ARGV[2], '^%d+')
-- What a stream holds can't be changed: the letter moves to the stream's end, and keeps its age.
local id = redis.call('XADD', dead, '*', 'e', ARGV[4], 'error', got.error or '', 'n', ARGV[5], 't', ARGV[6],
  'tries', count(got.tries), 'worker', got.worker or '', 'block', got.block or '', 'since', since,
  'fixes', (tonumber(got.fixes) or 0) + 1)
redis.call('XDEL', dead, ARGV[2])
return id
""",
        # after id, limit in events
        "survey": """
local rows, events, from, limit = {}, 0, '(' .. ARGV[2], tonumber(ARGV[3])
while true do
  local entries = redis.call('XRANGE', stream, from, '+', 'COUNT', 16)
  for _, entry in ipairs(entries) do
    local got = fields(entry)
    events = events + count(got.n)
    if #rows > 0 and events > limit then return rows end
    rows[#rows + 1] = {entry[1], count(got.n), count(got.t)}
    from = '(' .. entry[1]
  end
  if #entries < 16 then return rows end
end
""",
        # through id, most entries
        "trim": """
local events, blocks = 0, 0
while blocks < tonumber(ARGV[3]) do
  local entries = redis.call('XRANGE', stream, '-', ARGV[2], 'COUNT', 16)
  for _, entry in ipairs(entries) do
    local n = remove(entry[1])
    events, blocks = events + n, blocks + 1
  end
  if #entries < 16 then break end
end
return {events, blocks}
""",
        # names of counters
        "measure": """
local values = {}
for i = 2, #ARGV do values[#values + 1] = redis.call('HGET', counters, ARGV[i]) or '0' end
local pending = redis.pcall('XPENDING', stream, group)
values[#values + 1] = redis.call('XLEN', stream)
values[#values + 1] = pending.err and 0 or pending[1]
values[#values + 1] = redis.call('ZCARD', retry)
values[#values + 1] = redis.call('XLEN', dead)
values[#values + 1] = redis.call('HLEN', leaving)
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local age = -1
if first then age = math.max(0, now_ms() - tonumber(string.match(first[1], '^%d+'))) end
values[#values + 1] = age
return values
""",
        # most blocks, most bytes, then pairs of node and weight
        "depart": """
grouped()
local most_blocks, most_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local rows, bytes, total, known = {}, 0, 0, {}
for i = 4, #ARGV, 2 do
  known[ARGV[i]] = true
  total = total + tonumber(ARGV[i + 1])
end
-- The same block goes the same way whoever asks, while the weights stay; when they change the mark holds.
local function target_of(block)
  local place = (tonumber(string.sub(block or '', -7), 16) or 0) * 7919 % total
  for i = 4, #ARGV, 2 do
    place = place - tonumber(ARGV[i + 1])
    if place < 0 then return ARGV[i] end
  end
end
local function add(entry, target)
  local got = fields(entry)
  rows[#rows + 1] = {entry[1], target, got.i or entry[1], count(got.n), count(got.t), got.d or ''}
  bytes = bytes + #(got.d or '')
end
local marked = redis.call('HGETALL', leaving)
for i = 1, #marked, 2 do
  if known[marked[i + 1]] and #rows < most_blocks and bytes < most_bytes then
    local entry = redis.call('XRANGE', stream, marked[i], marked[i])[1]
    if entry then add(entry, marked[i + 1]) else redis.call('HDEL', leaving, marked[i]) end
  end
end
while total > 0 and #rows < most_blocks and bytes < most_bytes do
  -- Only what no worker has been given: claimed, it is nobody else's, and marked it stays so.
  local reply = redis.call('XREADGROUP', 'GROUP', group, 'transfer', 'COUNT', 1, 'STREAMS', stream, '>')
  if not reply then break end
  local entry = reply[1][2][1]
  local target = target_of(fields(entry).i)
  redis.call('HSET', leaving, entry[1], target)
  add(entry, target)
end
return rows
""",
        # passage, block id, events, newest time, data, how long a passage is remembered in ms
        "receive": """
if redis.call('ZSCORE', received, ARGV[2]) then return 0 end
redis.call('XADD', stream, '*', 'i', ARGV[3], 'n', ARGV[4], 't', ARGV[5], 'd', ARGV[6])
redis.call('HINCRBY', counters, 'inserted_events', ARGV[4])
redis.call('HINCRBY', counters, 'inserted_blocks', 1)
redis.call('HINCRBY', counters, 'inserted_bytes', #ARGV[6])
redis.call('HINCRBY', counters, 'received_events', ARGV[4])
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[7]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
""",
        # passage, how long it is remembered in ms, then the letter's fields and values
        "receive_letter": """
if redis.call('ZSCORE', received, ARGV[2]) then return 0 end
redis.call('XADD', dead, '*', unpack(ARGV, 4))
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[3]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
""",
        # passage, ms kept, worker, block, then data, error, events, newest time
        "letter": """
if redis.call('ZSCORE', received, ARGV[2]) then return 0 end
for i = 6, #ARGV, 4 do
  redis.call('XADD', dead, '*', 'e', ARGV[i], 'error', ARGV[i + 1], 'n', ARGV[i + 2], 't', ARGV[i + 3],
    'tries', 1, 'worker', ARGV[4], 'block', ARGV[5])
  redis.call('HINCRBY', counters, 'dead_events', ARGV[i + 2])
end
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[3]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
""",
        # ids
        "confirm": """
local events, blocks = 0, 0
for i = 2, #ARGV do
  if redis.call('HDEL', leaving, ARGV[i]) == 1 then
    local n, one = remove(ARGV[i])
    redis.call('HINCRBY', counters, 'sent_events', n)
    events, blocks = events + n, blocks + one
  end
end
return {events, blocks}
""",
        # nodes that are there no more
        "stay": """
local gone, freed = {}, 0
for i = 2, #ARGV do gone[ARGV[i]] = true end
local marked = redis.call('HGETALL', leaving)
for i = 1, #marked, 2 do
  if gone[marked[i + 1]] then freed = freed + redis.call('HDEL', leaving, marked[i]) end
end
return freed
""",
        # idle in ms
        "sweep": """
local gone = 0
local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if consumers.err then return 0 end
for _, each in ipairs(consumers) do
  local about = {}
  for i = 1, #each, 2 do about[each[i]] = each[i + 1] end
  if about.pending == 0 and about.idle >= tonumber(ARGV[2]) and about.name ~= 'retry' then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, about.name)
    gone = gone + 1
  end
end
return gone
""",
    }.items()
}
