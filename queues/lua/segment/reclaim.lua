#!lua flags=allow-oom
-- Gives a worker its due retries, and the entries of dead workers; it reads new entries afterwards.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, worker, maximum events, maximum bytes, after how many ms of silence a worker is dead
-- Answer  {{id, fields, tries}, …}, events and bytes that wait, entries of the stream, entries parked in lanes
-- include parts/segment
-- include parts/reclaim
local function waiting(unit)
  local counted = redis.call('HMGET', counters, 'inserted_' .. unit, 'removed_' .. unit)
  return (tonumber(counted[1]) or 0) - (tonumber(counted[2]) or 0)
end
return {found, waiting('events'), waiting('bytes'), redis.call('XLEN', stream), redis.call('ZCARD', lanes)}
