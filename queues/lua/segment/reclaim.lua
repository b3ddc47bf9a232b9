#!lua flags=allow-oom
-- Gives a worker its due retries, and what workers that died have left; what is new it reads after this.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, worker, most events, after how many ms of silence a worker is dead
-- Answer  {{id, fields, tries}, …}, events that wait, entries of the stream
-- include parts/segment
grouped()
local worker, limit, idle = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, events, now = {}, 0, followed_clock()
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
