-- Releases each lease; the lease of another holder is never touched.
-- KEYS    the leases
-- ARGV    for each lease: token and number
-- Answer  for each lease: 1, or 0 when it was lost
local answer = {}
for number, lease in ipairs(KEYS) do
  local is_held = redis.call('GET', lease) == ARGV[number]
  answer[number] = is_held and redis.call('DEL', lease) or 0
end
return answer
