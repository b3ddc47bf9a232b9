#!lua flags=allow-oom
-- Takes away rows of producers, each only as it was read: one that has reported since goes on.
-- KEYS    producers
-- ARGV    producer|queue and its row, for each
-- Answer  how many rows went
local gone = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    gone = gone + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return gone
