-- Removes faults that are dead letters now, and the batch once it has none.
-- KEYS    faults of the batch, the batches that have any
-- ARGV    the batch, then the places
-- Answer  how many the batch still has
for i = 2, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
local left = redis.call('HLEN', KEYS[1])
if left == 0 then redis.call('SREM', KEYS[2], ARGV[1]) end
return left
