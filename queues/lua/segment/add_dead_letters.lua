#!lua flags=allow-oom
-- Adds dead letters of an entry that is read by id and removed by trim, once.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, passage, ms for which it is remembered, worker, block, then for each dead letter: batch, error,
--         events, newest time, checksum
-- Answer  1, or 0 when they are here already
-- include parts/segment
if redis.call('ZSCORE', received, ARGV[2]) then
  -- A write, so that a caller who waits for a sync waits for the first attempt, too.
  redis.call('ZINCRBY', received, 1, ARGV[2])
  return 0
end
for i = 6, #ARGV, 5 do
  redis.call('XADD', dead, '*', 'c', ARGV[i + 4], 'e', ARGV[i], 'error', ARGV[i + 1], 'n', ARGV[i + 2],
    't', ARGV[i + 3], 'tries', 1, 'worker', ARGV[4], 'block', ARGV[5])
  redis.call('HINCRBY', counters, 'dead_events', ARGV[i + 2])
end
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[3]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
