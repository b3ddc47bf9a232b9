#!lua
-- Takes a block from another node, once. A full node rejects it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, passage, block, events, newest time, data, ms for which a passage is remembered
-- Answer  1, or 0 when it was taken before
-- include parts/segment
if redis.call('ZSCORE', received, ARGV[2]) then
  -- A write, so that a caller who waits for a sync waits for the first attempt, too.
  redis.call('ZINCRBY', received, 1, ARGV[2])
  return 0
end
redis.call('XADD', stream, '*', 'i', ARGV[3], 'n', ARGV[4], 't', ARGV[5], 'd', ARGV[6])
redis.call('HINCRBY', counters, 'inserted_events', ARGV[4])
redis.call('HINCRBY', counters, 'inserted_blocks', 1)
redis.call('HINCRBY', counters, 'inserted_bytes', #ARGV[6])
redis.call('HINCRBY', counters, 'received_events', ARGV[4])
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[7]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
