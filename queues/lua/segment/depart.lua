#!lua flags=allow-oom
-- Marks entries for other nodes by weight, and returns them for transfer; entries marked before come first.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, maximum blocks, maximum bytes, then for each node: its name, its weight
-- Answer  {{id, node, fields}, …}
-- include parts/segment
grouped()
local most_blocks, most_bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local rows, bytes, total, known = {}, 0, 0, {}
for i = 4, #ARGV, 2 do
  known[ARGV[i]] = true
  total = total + tonumber(ARGV[i + 1])
end
-- A block goes to the same node for every caller while the weights stay; when they change, its mark is kept.
local function target_of(block)
  local place = (tonumber(string.sub(block or '', -7), 16) or 0) * 7919 % total
  for i = 4, #ARGV, 2 do
    place = place - tonumber(ARGV[i + 1])
    if place < 0 then return ARGV[i] end
  end
end
local function add(entry, target)
  rows[#rows + 1] = {entry[1], target, entry[2]}
  bytes = bytes + bytes_of(fields(entry))
end
local marked = redis.call('HGETALL', leaving)
for i = 1, #marked, 2 do
  if known[marked[i + 1]] and #rows < most_blocks and bytes < most_bytes then
    local entry = redis.call('XRANGE', stream, marked[i], marked[i])[1]
    if entry then add(entry, marked[i + 1]) else redis.call('HDEL', leaving, marked[i]) end
  end
end
while total > 0 and #rows < most_blocks and bytes < most_bytes do
  -- Only entries that no worker was given: this claim keeps workers away, and so does the mark after it.
  local reply = redis.call('XREADGROUP', 'GROUP', group, 'transfer', 'COUNT', 1, 'STREAMS', stream, '>')
  local entry = reply and reply[1][2][1]
  if not entry then
    local id = redis.call('ZRANGE', lanes, 0, 0)[1]
    if not id then break end
    redis.call('ZREM', lanes, id)
    entry = redis.call('XCLAIM', stream, group, 'transfer', 0, id)[1]
  end
  if entry then
    local target = target_of(fields(entry).i)
    redis.call('HSET', leaving, entry[1], target)
    add(entry, target)
  end
end
return rows
