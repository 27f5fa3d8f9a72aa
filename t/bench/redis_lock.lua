-- The lock that people write: SET NX PX in access, DEL in log, where no socket
-- may be used and so a timer does it.  Connections are kept.

local function ask(text)
    local redis = ngx.socket.tcp()

    local ok, err = redis:connect("127.0.0.1", REDIS_PORT)
    if not ok then
        return nil, err
    end

    ok, err = redis:send(text)
    if not ok then
        return nil, err
    end

    local line
    line, err = redis:receive()
    if not line then
        return nil, err
    end

    redis:setkeepalive(60000, 64)

    return line
end

local function free(premature, key)
    ask("*2\r\n$3\r\nDEL\r\n$" .. #key .. "\r\n" .. key .. "\r\n")
end

local lock = {}

function lock.take(key)
    local line = ask("*6\r\n$3\r\nSET\r\n$" .. #key .. "\r\n" .. key
                     .. "\r\n$1\r\n1\r\n$2\r\nNX\r\n$2\r\nPX\r\n"
                     .. "$6\r\n900000\r\n")

    if line == "+OK" then
        ngx.ctx.locked = key
        return
    end

    return ngx.exit(line and 409 or 503)
end

function lock.release()
    if ngx.ctx.locked then
        ngx.timer.at(0, free, ngx.ctx.locked)
    end
end

return lock
