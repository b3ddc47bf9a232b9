-- Renews each lease for its full time.
-- KEYS    the leases
-- ARGV    ms, then for each lease: token and number
-- Answer  for each lease: 1, or 0 when it was lost
local answer = {}
for number, lease in ipairs(KEYS) do
  local is_held = redis.call('GET', lease) == ARGV[number + 1]
  answer[number] = is_held and redis.call('PEXPIRE', lease, ARGV[1]) or 0
end
return answer
