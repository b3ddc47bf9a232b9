#!lua flags=allow-oom
-- Removes entries that another node has received: only those marked for it.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, ids
-- Answer  {events, blocks} that were still marked
-- include parts/segment
local events, blocks = 0, 0
for i = 2, #ARGV do
  if redis.call('HDEL', leaving, ARGV[i]) == 1 then
    local n, one = remove(ARGV[i])
    redis.call('HINCRBY', counters, 'sent_events', n)
    events, blocks = events + n, blocks + one
  end
end
return {events, blocks}
