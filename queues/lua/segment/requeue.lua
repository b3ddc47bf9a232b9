#!lua flags=allow-oom
-- Requeues dead letters into the stream, if they are as they were shown.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, then for each: dead id, its digest as shown, a new block id, its events, its newest time, and the
--         checksum of the new block
-- Answer  for each: its events (at least 1), 0 when it is gone, -1 when it has changed, -3 when it is being moved
-- include parts/segment
-- include parts/dead_letter
local moved = {}
for i = 2, #ARGV, 6 do
  local got, why = shown(ARGV[i], ARGV[i + 1])
  if got then
    redis.call('XADD', stream, '*', 'c', ARGV[i + 5], 'i', ARGV[i + 2], 'n', ARGV[i + 3], 't', ARGV[i + 4], 'd', got.e)
    redis.call('XDEL', dead, ARGV[i])
    redis.call('HINCRBY', counters, 'inserted_events', ARGV[i + 3])
    redis.call('HINCRBY', counters, 'inserted_blocks', 1)
    redis.call('HINCRBY', counters, 'inserted_bytes', #got.e)
  end
  moved[#moved + 1] = got and math.max(1, tonumber(ARGV[i + 3])) or why
end
return moved
