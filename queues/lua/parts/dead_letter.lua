-- Returns the dead letter of an id if it is as it was shown, or else nothing and why: 0 gone, -1 changed, -3 on its way
-- to another node, which may have it already.
local function shown(id, digest)
  local entry = redis.call('XRANGE', dead, id, id)[1]
  if not entry then return nil, 0 end
  if redis.call('HEXISTS', leaving_letters, id) == 1 then return nil, -3 end
  local got = fields(entry)
  got.e, got.n, got.t = got.e or '', count(got.n), count(got.t)
  if redis.sha1hex(got.e) ~= digest then return nil, -1 end
  return got
end
