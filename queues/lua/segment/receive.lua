#!lua
-- Takes a block from another node, once. A full node rejects it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, passage, ms for which a passage is remembered, block, events, newest time, data, checksum ('' for a
--         block of an earlier version)
-- Answer  1, or 0 when it was taken before
-- include parts/segment
if redis.call('ZSCORE', received, ARGV[2]) then
  -- A write, so that a caller who waits for a sync waits for the first attempt, too.
  redis.call('ZINCRBY', received, 1, ARGV[2])
  return 0
end
local block = {'i', ARGV[4], 'n', ARGV[5], 't', ARGV[6], 'd', ARGV[7]}
if ARGV[8] == '' then
  redis.call('XADD', stream, '*', unpack(block))
else
  redis.call('XADD', stream, '*', 'c', ARGV[8], unpack(block))
end
redis.call('HINCRBY', counters, 'inserted_events', ARGV[5])
redis.call('HINCRBY', counters, 'inserted_blocks', 1)
redis.call('HINCRBY', counters, 'inserted_bytes', #ARGV[7])
redis.call('HINCRBY', counters, 'received_events', ARGV[5])
redis.call('ZREMRANGEBYSCORE', received, '-inf', now_ms() - tonumber(ARGV[3]))
redis.call('ZADD', received, now_ms(), ARGV[2])
return 1
