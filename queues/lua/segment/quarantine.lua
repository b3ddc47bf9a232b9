#!lua flags=allow-oom
-- Moves a damaged entry to the dead letters in one step, even if a worker holds it: no process may handle it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, id, the process that found it, block, events, newest time, batch, checksum of these, error, kind
-- Answer  {events, blocks} that were still there
-- include parts/segment
local events, blocks = remove(ARGV[2])
redis.call('HDEL', leaving, ARGV[2])
if blocks == 0 then return {0, 0} end
redis.call('XADD', dead, '*', 'c', ARGV[8], 'e', ARGV[7], 'error', ARGV[9], 'n', ARGV[5], 't', ARGV[6], 'tries', 0,
  'worker', ARGV[3], 'block', ARGV[4], 'kind', ARGV[10])
redis.call('HINCRBY', counters, 'dead_events', events)
redis.call('HINCRBY', counters, 'damaged_blocks', 1)
redis.call('HSET', counters, 'damage', ARGV[9], 'damaged_at_ms', now_ms())
return {events, blocks}
