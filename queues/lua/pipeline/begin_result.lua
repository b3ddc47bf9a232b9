-- Starts an attempt at a batch: what an earlier attempt has left is deleted, and that one can add nothing any more.
-- KEYS    room, blobs, then the blobs of an earlier attempt that ended at another dispatch
-- ARGV    replica, tick before the batch, attempt
-- Answer  1, or 0 when the batch, or a part of it, was published
if tonumber(redis.call('HGET', KEYS[1], 'published:' .. ARGV[1]) or '0') ~= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'attempt:' .. ARGV[1], ARGV[3])
redis.call('DEL', unpack(KEYS, 2))
return 1
