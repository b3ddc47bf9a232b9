-- Releases a result that the watermark has passed, once.
-- KEYS    room, results, blobs
-- ARGV    bytes, entry id of the result
-- Answer  1, or 0 when it was released before
if redis.call('XDEL', KEYS[2], ARGV[2]) == 0 then return 0 end
redis.call('DEL', KEYS[3])
redis.call('HINCRBY', KEYS[1], 'used_bytes', -tonumber(ARGV[1]))
return 1
