#!lua flags=allow-oom
-- Removes consumers of workers that ended.
-- KEYS    the queue's, as keys.OF_QUEUE
-- ARGV    group, ms of silence
-- Answer  how many
-- include parts/segment
local gone = 0
local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if consumers.err then return 0 end
for _, each in ipairs(consumers) do
  local about = {}
  for i = 1, #each, 2 do about[each[i]] = each[i + 1] end
  if about.pending == 0 and about.idle >= tonumber(ARGV[2]) and about.name ~= 'retry' then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, about.name)
    gone = gone + 1
  end
end
return gone
