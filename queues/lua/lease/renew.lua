-- Renews a lease for its full time.
-- KEYS    the lease
-- ARGV    token and number, ms
-- Answer  1, or 0 when it was lost
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
