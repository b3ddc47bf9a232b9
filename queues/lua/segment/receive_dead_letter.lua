#!lua
-- Takes a dead letter from another node, once. A full node rejects it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, passage, ms for which it is remembered, then the dead letter's fields and values
-- Answer  1, or 0 when it was taken before
-- include parts/segment
if redis.call('ZSCORE', received, ARGV[2]) then
  -- A write, so that a caller who waits for a sync waits for the first attempt, too.
  redis.call('ZINCRBY', received, 1, ARGV[2])
  return 0
end
redis.call('XADD', dead, '*', unpack(ARGV, 4))
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[3]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
