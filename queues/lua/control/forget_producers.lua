#!lua flags=allow-oom
-- Removes rows of producers, each only if it is as it was read: a producer that has reported since stays.
-- KEYS    producers
-- ARGV    producer|queue and its row, for each
-- Answer  how many rows were removed
local gone = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    gone = gone + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return gone
