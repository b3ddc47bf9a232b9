#!lua flags=allow-oom
-- Returns the gauges of a segment, all of one instant.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, names of counters
-- Answer  the counters; entries, pending, failed ones that wait for a retry, dead and leaving entries, leaving dead
--         letters; ms since the oldest was stored: "" if there is none, negative if the clock was set back since; the
--         error of the newest dead entry;
--         the block that was found damaged last, and when (ms; "": none was)
-- include parts/segment
local values = {}
for i = 2, #ARGV do values[#values + 1] = redis.call('HGET', counters, ARGV[i]) or '0' end
local pending = redis.pcall('XPENDING', stream, group)
values[#values + 1] = redis.call('XLEN', stream)
-- Parked blocks belong to no worker: they wait like any other entry.
values[#values + 1] = pending.err and 0 or math.max(0, pending[1] - redis.call('ZCARD', lanes))
-- What a worker returned without a try is due at once: it has not failed, and waits like any other entry.
values[#values + 1] = redis.call('ZCOUNT', retry, '(' .. now_ms(), '+inf')
values[#values + 1] = redis.call('XLEN', dead)
values[#values + 1] = redis.call('HLEN', leaving)
values[#values + 1] = redis.call('HLEN', leaving_letters)
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
values[#values + 1] = first and now_ms() - tonumber(string.match(first[1], '^%d+')) or ''
local newest = redis.call('XREVRANGE', dead, '+', '-', 'COUNT', 1)[1]
values[#values + 1] = ''
for i = 1, newest and #newest[2] or 0, 2 do
  if newest[2][i] == 'error' then values[#values] = string.sub(newest[2][i + 1], 1, 300) end
end
values[#values + 1] = redis.call('HGET', counters, 'damage') or ''
values[#values + 1] = redis.call('HGET', counters, 'damaged_at_ms') or ''
return values
