"""Who keeps much in a full Redis makes room with its own, as in memory (kept_answers/expiring.py).

Redis itself drops what was not used for longest, whoever's it is: a few large answers of one key would push out those
of all others. So each owner has a sorted set, `SIZE:NAME` -> when it expires, as far as is known, and a sum of the
sizes; both may be lost. Each use begins a record's time anew, so the first to expire is the least recently used.
"""

from gateway.kept_answers.expiring import SHARE

PREFIX = "breakeven:shares:"
FULL = 0.9
"""A Redis with `maxmemory` counts as full before it drops anything by itself."""
OVERHEAD_BYTES = 256
"""About what a record's name, and its place in the set, cost."""
AT_ONCE = 1000
"""Redis does nothing else while a script runs."""

# keep(NAME, VALUE, MILLISECONDS, SHARE) and drop(NAME, SHARE): the last is the owner's set, or '' without an owner.
# What is first in the set may be gone; or it was used since, and goes back to where it belongs. drop returns 1 if there
# was such a record.
KEEP = f"""
local OVERHEAD, PART, FULL, AT_ONCE = {OVERHEAD_BYTES}, {SHARE}, {FULL}, {AT_ONCE}
local function keep(name, value, milliseconds, share)
  redis.call('SET', name, value, 'PX', milliseconds)
  if share == '' then return end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local memory = redis.pcall('INFO', 'memory')
  if type(memory) ~= 'string' then memory = '' end  -- its user may not ask
  local most = tonumber(string.match(memory, 'maxmemory:(%d+)') or 0)
  local used = tonumber(string.match(memory, 'used_memory:(%d+)') or 0)
  local size, sum = #value + OVERHEAD, tonumber(redis.call('GET', share .. ':bytes') or 0)
  local lasts = math.max(milliseconds, redis.call('PTTL', share))
  local wanted = 0
  if most > 0 and used > most * FULL then wanted = size end
  for _ = 1, AT_ONCE do
    local member, ends = unpack(redis.call('ZRANGE', share, 0, 0, 'WITHSCORES'))
    if not member then sum = 0 break end
    if (wanted <= 0 or sum <= most / PART) and tonumber(ends) > now then break end
    local bytes, first = string.match(member, '^(%d+):(.*)$')
    local left = redis.call('PTTL', first)
    if left > 0 and now + left > ends + 1000 then
      redis.call('ZADD', share, string.format('%.0f', now + left), member)
    else
      redis.call('ZREM', share, member)
      sum = sum - bytes
      if redis.call('DEL', first) == 1 then wanted = wanted - bytes end
    end
  end
  redis.call('ZADD', share, string.format('%.0f', now + milliseconds), size .. ':' .. name)
  redis.call('PEXPIRE', share, lasts)
  redis.call('SET', share .. ':bytes', string.format('%.0f', math.max(0, sum) + size), 'PX', lasts)
end
local function drop(name, share)
  local size = redis.call('STRLEN', name) + OVERHEAD
  local gone = redis.call('DEL', name)
  if share ~= '' and redis.call('ZREM', share, size .. ':' .. name) == 1 then
    local sum = redis.call('GET', share .. ':bytes')  -- which may have been dropped alone
    if sum then redis.call('DECRBY', share .. ':bytes', size) end
  end
  return gone
end
"""
PUT = KEEP + "keep(KEYS[1], ARGV[1], ARGV[2], ARGV[3]) return 0"
DELETE = KEEP + "return drop(KEYS[1], ARGV[1])"


def share_of(owner: str, prefix: str) -> str:
    """The set of an owner's records whose names begin with `prefix`; '' without an owner."""
    return f"{PREFIX}{prefix}{owner}" if owner else ""
