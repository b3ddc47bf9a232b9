-- Releases a lease; the lease of another holder is never touched.
-- KEYS    the lease
-- ARGV    token and number
-- Answer  1, or 0 when it was lost
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
