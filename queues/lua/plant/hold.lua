-- Takes a plant, or keeps it longer, never shorter.
-- KEYS    the plant's holder
-- ARGV    who asks, what would be written, ms
-- Answer  what stands there, of another or of the same for longer than asked; nothing when it was written
local stored = redis.call('GET', KEYS[1])
if stored and cjson.decode(stored).holder ~= ARGV[1] then return stored end
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[3]) then return stored end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
