"""The Lua scripts of counters.py. Each runs atomically, and first checks whether the store was emptied.

Keys, all below one prefix:

    epoch                   the server's run id and when these counters began; changes after a flush or restart
    EPOCH:meta              opened, begun, began_at, read, heard, fleet, corrected
    EPOCH:books             account -> spent according to the last reading of the database ("books")
    EPOCH:less              account -> since when readings show less than that, which is not believed at once
    EPOCH:marks             end user's account that was read by itself -> the reading that it counts as
    EPOCH:account:ACCOUNT   worker -> "total:spent:unsent:as_of", a Holding; "tight" -> until when no extra is leased
    workers                 worker -> when it was last heard from
    rate:BUCKET             level, at
    places:BUCKET           see places.py
    sums:FLEET:NAME         process -> JSON of its own sums

A reading in which an account shows less than before may also lack what other workers shipped. It does not count as a
reading, so holdings stay held; only larger sums and new accounts are taken from it.

If the meta alone disappears, by an unsuitable eviction policy or by hand, that counts as a flush, too.

A new epoch leases nothing until every worker had time to report its holdings and the books have been read. Neither does
an old one after a standstill, in which no worker was heard from: the server hung, or was unreachable. Workers are not
considered silent for that time; otherwise what they went on spending would be leased again to the first to return. A
jump of the server's clock forwards looks the same; after one backwards, the workers' times are shifted along.

What a silent worker held is kept until a reading of the books includes it; see gateway.limits.counters.
"""

from gateway.limits.counters import END_USERS, SILENT_SECONDS

SILENT_MS = round(SILENT_SECONDS * 1000)
KEEP_MS = 600_000
TIGHT_MS = 5000
STANDSTILL_MS = 20_000

CONSTANTS = f"""
local SILENT, KEEP, TIGHT, STANDSTILL = {SILENT_MS}, {KEEP_MS}, {TIGHT_MS}, {STANDSTILL_MS}
local END_USERS = '{END_USERS}'
"""

# KEYS[1] is `epoch`, ARGV[1] the epoch that the caller knows, ARGV[2] the prefix. Returns {'epoch', NAME} if it
# changed.
PRELUDE = (
    CONSTANTS
    + """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local epoch = redis.call('GET', KEYS[1])
if not epoch or string.sub(epoch, 1, #run) ~= run
  or redis.call('HEXISTS', ARGV[2] .. epoch .. ':meta', 'begun') == 0 then
  epoch = string.format('%s-%.0f', run, now)
  redis.call('SET', KEYS[1], epoch)
  redis.call('HSET', ARGV[2] .. epoch .. ':meta', 'opened', now, 'begun', string.format('%.0f', now))
end
if epoch ~= ARGV[1] then return {'epoch', epoch} end
local meta = ARGV[2] .. epoch .. ':meta'
local books = ARGV[2] .. epoch .. ':books'
local accounts = ARGV[2] .. epoch .. ':account:'
local marks = ARGV[2] .. epoch .. ':marks'
local workers = ARGV[2] .. 'workers'
local jump = now - tonumber(redis.call('HGET', meta, 'heard') or now)
if jump > STANDSTILL or jump < 0 then
  redis.call('HSET', meta, 'opened', now)
  redis.call('HDEL', meta, 'began_at')
  local seen = redis.call('ZRANGE', workers, 0, -1, 'WITHSCORES')
  for i = 1, #seen, 2 do redis.call('ZADD', workers, seen[i + 1] + jump, seen[i]) end
end
redis.call('HSET', meta, 'heard', now)
local function is_end_users(account) return string.sub(account, 1, #END_USERS) == END_USERS end
local function hold(account, worker, total, spent, unsent, as_of)
  local key = accounts .. account
  if total == '0' and spent == '0' then
    redis.call('HDEL', key, worker)
  else
    redis.call('HSET', key, worker, table.concat({total, spent, unsent, as_of}, ':'))
    redis.call('PEXPIRE', key, KEEP)
  end
end
"""
)

# KEYS: meta, workers, epoch; ARGV: fleet, "cluster" if its address is a cluster's. -> {'ours'}, {'theirs'}, or
# {'left'}: the others are gone; a new epoch begins
# {'cluster'}: while all keys of counting may be on one node, those of kept answers are not, unless the
# address says that it is one.
CLAIM = (
    CONSTANTS
    + """
if ARGV[2] ~= 'cluster' and string.find(redis.call('INFO', 'cluster'), 'cluster_enabled:1') then return {'cluster'} end
redis.call('HSETNX', KEYS[1], 'fleet', ARGV[1])
if redis.call('HGET', KEYS[1], 'fleet') == ARGV[1] then return {'ours'} end
if redis.call('ZCOUNT', KEYS[2], redis.call('TIME')[1] * 1000 - KEEP, '+inf') > 0 then return {'theirs'} end
redis.call('DEL', KEYS[3])
return {'left'}
"""
)

# ARGV: 3 worker, 4 account, 5 limit, 6 total, 7 spent, 8 unsent, 9 as_of, 10 need, 11 want, 12 how long a new epoch
# leases nothing (ms). -> {'ok', granted, spent, held, held_spent, surely_gone} or {'unread'}
LEASE = (
    PRELUDE
    + """
local worker, account = ARGV[3], ARGV[4]
hold(account, worker, ARGV[6], ARGV[7], ARGV[8], ARGV[9])
redis.call('ZADD', workers, now, worker)
local booked = redis.call('HGET', books, account)
local opened = tonumber(redis.call('HGET', meta, 'opened'))
if not booked or now < opened + tonumber(ARGV[12]) then return {'unread'} end
local read = tonumber(redis.call('HGET', meta, 'read'))
local held, held_spent, unsent, tight = 0, 0, 0, 0
if tonumber(ARGV[9]) >= read then unsent = tonumber(ARGV[8]) end
local fields = redis.call('HGETALL', accounts .. account)
for i = 1, #fields, 2 do
  local name = fields[i]
  if name == 'tight' then
    tight = tonumber(fields[i + 1])
  elseif name ~= worker then
    local seen = redis.call('ZSCORE', workers, name)
    if seen and (now - tonumber(seen) < SILENT or read < tonumber(seen) + SILENT) then
      local total, spent, fresh, as_of = string.match(fields[i + 1], '(-?%d+):(%d+):(%d+):(%d+)')
      held, held_spent = held + tonumber(total), held_spent + tonumber(spent)
      if tonumber(as_of) >= read then unsent = unsent + tonumber(fresh) end
    else
      redis.call('HDEL', accounts .. account, name)
    end
  end
end
if is_end_users(account) and redis.call('HEXISTS', marks, account) == 1 then unsent = 0 end
local spent, need, want = tonumber(booked), tonumber(ARGV[10]), tonumber(ARGV[11])
local free = tonumber(ARGV[5]) - spent - held - tonumber(ARGV[6])
local granted = 0
if need <= free then
  granted = need
  if now >= tight or tight > now + TIGHT then granted = need + math.floor(math.min(want - need, (free - need) / 8)) end
  hold(account, worker, string.format('%.0f', tonumber(ARGV[6]) + granted), ARGV[7], ARGV[8], ARGV[9])
else
  redis.call('HSET', accounts .. account, 'tight', string.format('%.0f', now + TIGHT))
  redis.call('PEXPIRE', accounts .. account, KEEP)
end
return {'ok', granted, spent, held, held_spent, spent + unsent}
"""
)

# ARGV: 3 worker, then account, total, spent, unsent, as_of of each.
# -> {'ok', begun, read, workers, tight accounts ...}
REPORT = (
    PRELUDE
    + """
redis.call('ZADD', workers, now, ARGV[3])
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - KEEP)
local answer = {'ok', redis.call('HGET', meta, 'begun'), redis.call('HGET', meta, 'read') or '0',
  redis.call('ZCOUNT', workers, now - SILENT, '+inf')}
for i = 4, #ARGV, 5 do
  hold(ARGV[i], ARGV[3], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
  local tight = redis.call('HGET', accounts .. ARGV[i], 'tight')
  if tight and tonumber(tight) > now and tonumber(tight) <= now + TIGHT then answer[#answer + 1] = ARGV[i] end
end
return answer
"""
)

# ARGV: 3 minimum time since the last reading began (ms). -> {'ok', number, end users' accounts to read ...} or {'busy'}
BEGIN_READING = (
    PRELUDE
    + """
if now < (tonumber(redis.call('HGET', meta, 'began_at')) or 0) + tonumber(ARGV[3]) then return {'busy'} end
redis.call('HSET', meta, 'began_at', now)
local number = string.format('%.0f', math.max(now, tonumber(redis.call('HGET', meta, 'begun')) + 1))
redis.call('HSET', meta, 'begun', number)
local answer = {'ok', number}
for _, account in ipairs(redis.call('HKEYS', books)) do
  if is_end_users(account) then
    local key = accounts .. account
    if redis.call('HLEN', key) > redis.call('HEXISTS', key, 'tight') then answer[#answer + 1] = account end
  end
end
return answer
"""
)

# ARGV: 3 number, 4 how long a lower sum is not believed (ms), 5 a number that rises with corrections, which explain a
# lower sum, then account, spent of each. -> {'ok'}
END_READING = (
    PRELUDE
    + """
if tonumber(ARGV[3]) <= (tonumber(redis.call('HGET', meta, 'read')) or 0) then return {'ok'} end
local less = ARGV[2] .. epoch .. ':less'
local last, since, marked = redis.call('HGETALL', books), redis.call('HGETALL', less), redis.call('HGETALL', marks)
local before, less_since, later = {}, {}, {}
for i = 1, #last, 2 do before[last[i]] = last[i + 1] end
for i = 1, #since, 2 do less_since[since[i]] = tonumber(since[i + 1]) end
redis.call('DEL', books, less, marks)
local read, corrected = ARGV[3], redis.call('HGET', meta, 'corrected')
local is_corrected = corrected and tonumber(ARGV[5]) > tonumber(corrected)
if is_corrected or not corrected then redis.call('HSET', meta, 'corrected', ARGV[5]) end
for i = 1, #marked, 2 do
  local account, mark = marked[i], marked[i + 1]
  if tonumber(mark) >= tonumber(ARGV[3]) then
    later[account] = true
    redis.call('HSET', books, account, before[account])
    redis.call('HSET', marks, account, mark)
  end
end
for i = 6, #ARGV, 2 do
  local account, spent = ARGV[i], ARGV[i + 1]
  if later[account] then
    spent = before[account]
  elseif not is_corrected and before[account] and tonumber(spent) < tonumber(before[account]) then
    local began = math.min(less_since[account] or now, now)
    if now < began + tonumber(ARGV[4]) then
      redis.call('HSET', less, account, string.format('%.0f', began))
      spent, read = before[account], redis.call('HGET', meta, 'read')
    end
  end
  redis.call('HSET', books, account, spent)
end
redis.call('PEXPIRE', less, KEEP)
redis.call('HSET', meta, 'read', read)
return {'ok'}
"""
)

# ARGV: 3 the reading that had begun before these were read ('' asks for it), 4 in which epoch, then account, spent of
# each. -> {'ok', begun, epoch, how many of them were not known}
ADD_TO_READING = (
    PRELUDE
    + """
local begun, read, new = redis.call('HGET', meta, 'begun'), tonumber(redis.call('HGET', meta, 'read')), 0
if read and ARGV[4] == epoch and read <= tonumber(ARGV[3]) then
  for i = 5, #ARGV, 2 do
    if redis.call('HSETNX', books, ARGV[i], ARGV[i + 1]) == 1 then
      redis.call('HSET', marks, ARGV[i], ARGV[3])
      new = new + 1
    end
  end
end
return {'ok', begun, epoch, new}
"""
)

# KEYS: the buckets; ARGV: amount, capacity of each. -> {0, new level of each} or {index of the first that falls short,
# milliseconds to wait}
TAKE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local levels, answer = {}, {0}
for i, key in ipairs(KEYS) do
  local amount, capacity = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local found = redis.call('HMGET', key, 'level', 'at')
  local level, at = tonumber(found[1]) or capacity, tonumber(found[2]) or now
  if at > now then  -- the clock was put back
    at = now
    redis.call('HSET', key, 'at', string.format('%.3f', now))
  end
  level = math.min(capacity, level + capacity * (now - at) / 60000)
  local missing = math.min(amount, capacity) - level
  if missing > 0 then return {i, math.ceil(missing / capacity * 60000)} end
  levels[i] = level - amount
  answer[i + 1] = math.floor(levels[i])
end
for i, key in ipairs(KEYS) do
  redis.call('HSET', key, 'level', string.format('%.6f', levels[i]), 'at', string.format('%.3f', now))
  local capacity = tonumber(ARGV[2 * i])
  redis.call('PEXPIRE', key, 60000 + math.ceil(math.max(0, capacity - levels[i]) / capacity * 60000))
end
return answer
"""

# KEYS: the sums; ARGV: process, its own sums, how long to keep all (ms). -> the sums of each process
SHARE = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.call('HVALS', KEYS[1])
"""
