#!lua flags=allow-oom
-- Unmarks blocks and dead letters for nodes that no longer exist, so that they are handled here.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, nodes
-- Answer  how many
-- include parts/segment
local gone, freed = {}, 0
for i = 2, #ARGV do gone[ARGV[i]] = true end
for _, marks in ipairs({leaving, leaving_letters}) do
  local marked = redis.call('HGETALL', marks)
  for i = 1, #marked, 2 do
    if gone[marked[i + 1]] then freed = freed + redis.call('HDEL', marks, marked[i]) end
  end
end
return freed
