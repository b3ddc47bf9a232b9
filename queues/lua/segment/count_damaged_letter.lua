#!lua flags=allow-oom
-- Counts a dead letter that was found damaged, once, and keeps what it held.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, passage, ms for which it is remembered, the damage in a sentence
-- Answer  1, or 0 when it was counted before
-- include parts/segment
if redis.call('ZSCORE', received, ARGV[2]) then return 0 end
redis.call('HINCRBY', counters, 'damaged_blocks', 1)
redis.call('HSET', counters, 'damage', ARGV[4], 'damaged_at_ms', now_ms())
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[3]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
