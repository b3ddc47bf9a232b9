#!lua flags=allow-oom
-- Removes dead letters that another node has received: only those marked for it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, ids
-- Answer  how many were still marked
-- include parts/segment
local gone = 0
for i = 2, #ARGV do
  if redis.call('HDEL', leaving_letters, ARGV[i]) == 1 then gone = gone + redis.call('XDEL', dead, ARGV[i]) end
end
return gone
