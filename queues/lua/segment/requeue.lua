#!lua flags=allow-oom
-- Requeues dead letters into the stream, if they are as they were shown.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, then for each: dead id, its digest as shown, a new block id
-- Answer  for each: its events (at least 1), 0 when it is gone, -1 when it has changed
-- include parts/segment
-- include parts/dead_letter
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
