#!lua flags=allow-oom
-- Counts the content of the stream, as it will be counted when it is removed.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, start (as for XRANGE), maximum entries
-- Answer  events, blocks, bytes, the last entry's id
-- include parts/segment
local events, bytes = 0, 0
local entries = redis.call('XRANGE', stream, ARGV[2], '+', 'COUNT', ARGV[3])
for _, entry in ipairs(entries) do
  local got = fields(entry)
  events, bytes = events + events_of(got), bytes + bytes_of(got)
end
return {events, #entries, bytes, #entries > 0 and entries[#entries][1] or ''}
