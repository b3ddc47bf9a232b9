#!lua flags=allow-oom
-- Removes handled entries, and counts them.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, ids
-- Answer  {events, blocks} that were still there
-- include parts/segment
local events, blocks = 0, 0
for i = 2, #ARGV do
  local n, one = remove(ARGV[i])
  events, blocks = events + n, blocks + one
end
return {events, blocks}
