-- Lets a plant go.
-- KEYS    the plant's holder
-- ARGV    who asks
-- Answer  1, or 0 when it was not this one's
local stored = redis.call('GET', KEYS[1])
if not stored or cjson.decode(stored).holder ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
