#!lua flags=allow-oom
-- Removes everything up to and including an entry, and counts it; nothing if the entry is of another stream.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, id, maximum entries
-- Answer  {events, blocks} removed
-- include parts/segment
local events, blocks = 0, 0
if is_of_another_stream(ARGV[2]) then return {0, 0} end
while blocks < tonumber(ARGV[3]) do
  local entries = redis.call('XRANGE', stream, '-', ARGV[2], 'COUNT', 16)
  for _, entry in ipairs(entries) do
    local n = remove(entry[1])
    events, blocks = events + n, blocks + 1
  end
  if #entries < 16 then break end
end
return {events, blocks}
