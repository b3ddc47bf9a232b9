-- Releases a plant.
-- KEYS    the plant's holder
-- ARGV    the caller
-- Answer  1, or 0 when the caller did not hold it
local stored = redis.call('GET', KEYS[1])
if not stored or cjson.decode(stored).holder ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
