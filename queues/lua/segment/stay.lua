#!lua flags=allow-oom
-- Unmarks entries for nodes that no longer exist, so that they are handled here.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, nodes
-- Answer  how many
-- include parts/segment
local gone, freed = {}, 0
for i = 2, #ARGV do gone[ARGV[i]] = true end
local marked = redis.call('HGETALL', leaving)
for i = 1, #marked, 2 do
  if gone[marked[i + 1]] then freed = freed + redis.call('HDEL', leaving, marked[i]) end
end
return freed
