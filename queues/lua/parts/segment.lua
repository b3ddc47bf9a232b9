-- The common start of a segment's scripts: its keys (keys.OF_QUEUE), its consumer group, and its counts.
local stream, counters, retry, dead, leaving, received, lanes, leaving_letters =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local group = ARGV[1]
local function fields(entry)
  local found = {}
  for i = 1, #entry[2], 2 do found[entry[2][i]] = entry[2][i + 1] end
  return found
end
-- Returns a number of an entry; 0 for a foreign value, since no entry may block those after it.
local function count(text)
  local number = tonumber(text)
  if not number or number ~= math.floor(number) or number < 0 or number > 2^53 then return 0 end
  return number
end
-- The end of a checksum: the events, and 8 digits. One bit turns a 0 into a space, so their number counts.
local COPY = ' (%d+) (' .. string.rep('%x', 8) .. ')$'
-- Returns whether a digest is that of a block's header with this number of events.
local function is_of_header(digest, got, events)
  local header = (got.i or '') .. ' ' .. (events or '') .. ' ' .. (got.t or '')
  return string.sub(redis.sha1hex(header), 1, 8) == digest
end
-- Returns whether a block's header (ID, events, newest time) is as its publisher wrote it. A block of an earlier version
-- has no digest, and counts as intact: `queues.segments.checksum`.
local function check_header(got)
  local copy, digest = string.match(got.c or '', COPY)
  return not copy or is_of_header(digest, got, got.n)
end
-- Returns the events of a block as they were counted when it was stored, even if one of its fields is damaged: if the
-- copy differs, and the header is not intact with it, then the copy is damaged.
local function events_of(got)
  local copy, digest = string.match(got.c or '', COPY)
  if not copy or copy == got.n then return count(got.n) end
  return count(is_of_header(digest, got, copy) and copy or got.n)
end
-- Returns the bytes of a block's data. If the name of that field is damaged, the data is the longest field.
local function bytes_of(got)
  if got.d or not got.c then return #(got.d or '') end
  local longest = 0
  for _, value in pairs(got) do longest = math.max(longest, #value) end
  return longest
end
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local CLOCK_MS = 1000  -- a clock that NTP slows is not set back
-- Returns the time for claims. After a clock was set back, entries that were claimed before, or are to be retried,
-- would be due in the future.
local function followed_clock()
  local now = now_ms()
  local latest = tonumber(redis.call('HGET', counters, 'claimed_at_ms') or now - 2 * CLOCK_MS)
  if math.abs(now - latest) > CLOCK_MS then redis.call('HSET', counters, 'claimed_at_ms', now) end
  if now >= latest - CLOCK_MS then return now end
  for _, id in ipairs(redis.call('ZRANGE', retry, 0, -1)) do redis.call('ZINCRBY', retry, now - latest, id) end
  local from = '-'
  repeat
    local pending = redis.call('XPENDING', stream, group, from, '+', 1000)
    for _, each in ipairs(pending) do
      redis.call('XCLAIM', stream, group, each[2], 0, each[1], 'JUSTID')
      from = '(' .. each[1]
    end
  until #pending < 1000
  return now
end
-- Returns whether an id is greater than all that the stream has ever had. Then it belongs to an earlier stream, since
-- ids rise as long as the key exists.
local function is_of_another_stream(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  if not ms or redis.call('XLEN', stream) == 0 then return false end
  -- A stream with an entry after the id has had it. The last id is read only otherwise: it comes with two payloads.
  if #redis.call('XRANGE', stream, '(' .. id, '+', 'COUNT', 1) > 0 then return false end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      local last_ms, last_seq = info[i + 1]:match('^(%d+)-(%d+)$')
      ms, seq, last_ms, last_seq = tonumber(ms), tonumber(seq), tonumber(last_ms), tonumber(last_seq)
      return ms > last_ms or (ms == last_ms and seq > last_seq)
    end
  end
  return false
end
local function grouped()
  -- Answers BUSYGROUP if it exists already.
  redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
end
-- Returns whether a worker holds an entry: a worker that was paused and overtaken may not change it any more.
local function is_held(id, worker)
  local mine = redis.pcall('XPENDING', stream, group, id, id, 1, worker)
  return mine[1] ~= nil and mine[1][1] == id
end
-- Removes one entry and counts it, if it is still there: a second caller counts nothing.
local function remove(id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  redis.pcall('XACK', stream, group, id)
  redis.call('ZREM', retry, id)
  redis.call('ZREM', lanes, id)
  if not entry then return 0, 0 end
  redis.call('XDEL', stream, id)
  local got = fields(entry)
  local n = events_of(got)
  redis.call('HINCRBY', counters, 'removed_events', n)
  redis.call('HINCRBY', counters, 'removed_blocks', 1)
  redis.call('HINCRBY', counters, 'removed_bytes', bytes_of(got))
  if not got.c and #entry[2] == 8 then redis.call('HINCRBY', counters, 'unchecked_blocks', 1) end
  return n, 1
end
