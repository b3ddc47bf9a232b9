-- Takes a plant, or extends the hold; never shortens it.
-- KEYS    the plant's holder
-- ARGV    the caller, the value to write, ms
-- Answer  the present value, of another holder or of the same for longer than requested; nothing when it was written
local stored = redis.call('GET', KEYS[1])
if stored and cjson.decode(stored).holder ~= ARGV[1] then return stored end
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then return stored end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
