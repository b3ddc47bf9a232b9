-- Plans the next inter-event batch, unless another combiner has planned it.
-- KEYS    planned
-- ARGV    the newest batch as read ('' for none), the next batch, its offset
-- Answer  1, or 0 when another batch is the newest one
if (redis.call('HGET', KEYS[1], 'batch') or '') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1]) -- the other fields belong to the batch before
redis.call('HSET', KEYS[1], 'batch', ARGV[2], 'offset', ARGV[3])
return 1
