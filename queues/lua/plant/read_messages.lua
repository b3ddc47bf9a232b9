-- Reads the oldest messages of a list, for a Celery app on Redis.
-- KEYS    the list
-- ARGV    the messages to skip, the maximum number, the maximum bytes of those after the first
-- Answer  the messages, oldest first
local messages, bytes, skipped = {}, 0, tonumber(ARGV[1])
for place = skipped, skipped + tonumber(ARGV[2]) - 1 do
    local message = redis.call('LINDEX', KEYS[1], -1 - place)
    if not message then break end
    bytes = bytes + #message
    if #messages > 0 and bytes > tonumber(ARGV[3]) then break end
    messages[#messages + 1] = message
end
return messages
