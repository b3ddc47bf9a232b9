#!lua flags=allow-oom
-- Lists what waits after an entry, without payloads.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, id, maximum events, 1: from the beginning if the id is of another stream
-- Answer  {{id, events, newest time, block id}, …}, at least one row if anything waits
-- include parts/segment
local rows, events, limit = {}, 0, tonumber(ARGV[3])
local function read(from)
  while true do
    local entries = redis.call('XRANGE', stream, from, '+', 'COUNT', 16)
    for _, entry in ipairs(entries) do
      local got = fields(entry)
      local n, is_intact = events_of(got), check_header(got)
      events = events + n
      if #rows > 0 and events > limit then return end
      -- A damaged time would move the watermark, and a damaged ID the order of a producer: neither is known.
      rows[#rows + 1] = {entry[1], n, is_intact and count(got.t) or 0, is_intact and got.i or ''}
      from = '(' .. entry[1]
    end
    if #entries < 16 then return end
  end
end
read('(' .. ARGV[2])
if #rows == 0 and ARGV[4] == '1' and is_of_another_stream(ARGV[2]) then read('-') end
return rows
