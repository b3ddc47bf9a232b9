-- Adds the results of a worker to its container's counts, once, even if it is repeated.
-- KEYS    the worker's id, the container's running workers, its work, its queue's latency
-- ARGV    worker, s that its id is kept, why it ended early, how many counts, then counts and buckets: name, number
-- Answer  1, or 0 when it was added before
if redis.call('GET', KEYS[1]) == 'ended' then return 0 end
redis.call('SET', KEYS[1], 'ended', 'EX', ARGV[2])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[3], 'trouble', ARGV[3])
local buckets = 5 + 2 * ARGV[4]
for i = 5, #ARGV, 2 do
  redis.call('HINCRBY', i < buckets and KEYS[3] or KEYS[4], ARGV[i], ARGV[i + 1])
end
return 1
