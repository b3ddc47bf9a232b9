-- Deletes the blobs of an attempt that died, unless it was published.
-- KEYS    room, blobs
-- ARGV    replica, tick
-- Answer  1, or 0 when there is nothing to delete
local published = redis.call('HGET', KEYS[1], 'published:' .. ARGV[1])
if tonumber(published or '0') >= tonumber(ARGV[2]) then return 0 end
return redis.call('DEL', KEYS[2])
