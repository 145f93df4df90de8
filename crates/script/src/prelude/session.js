// The session `s` of a `stream`.

// Names of events: the side that the bytes come from, and the form in which a function gets them.
const CLIENT = 0, PEER = 1;
const EVENTS = new Map([['upload', [CLIENT, false]], ['download', [PEER, false]],
    ['upstream', [CLIENT, true]], ['downstream', [PEER, true]]]);
// Codes of nginx for the end of a phase.
const OK = 0, DECLINED = -5, FORBIDDEN = 403, LEAST = -6, MOST = 503;

// The functions that wait for bytes, by their sides.
let handlers = [undefined, undefined];
// True once a filter may send.
let isFiltering = false;
// The side whose bytes a function has; none where it was called for something else.
let current;
let session;

function eventOf(name) {
    const event = EVENTS.get(String(name));
    if (event === undefined) {
        throw new TypeError(`unknown event "${String(name)}"`);
    }
    return event;
}

function forget(id, side) {
    if (handlers[side] !== undefined) {
        handlers[side] = undefined;
        native.sessionListen(id, side);
    }
}

function decide(id, standard, code) {
    let status = standard;
    if (code !== undefined) {
        status = Number(code);
        if (!Number.isInteger(status)) {
            throw new TypeError('is not a number');
        }
        if (status < LEAST || status > MOST) {
            throw new RangeError('code is out of range');
        }
    }
    if (isFiltering) {
        throw new TypeError('should not be called while filtering');
    }
    native.sessionDecide(id, status);
    forget(id, CLIENT);
    forget(id, PEER);
}

function send(id, data, flags, given) {
    if (!isFiltering) {
        throw new TypeError('cannot send buffer in this handler');
    }
    let side = given;
    if (side === undefined && typeof flags === 'object' && flags !== null
        && flags.from_upstream !== undefined) {
        side = flags.from_upstream ? PEER : CLIENT;
    }
    side = side === undefined ? current : side;
    if (side === undefined) {
        throw new TypeError('from_upstream flag is expected when called asynchronously');
    }
    native.sessionSend(id, side, own.raw(data));
}

class Flags {
    #side;
    #last;
    constructor(side, last) {
        this.#side = side;
        this.#last = last;
    }
    get [Symbol.toStringTag]() { return 'Stream Flags'; }
    get from_upstream() { return this.#side === PEER; }
    get last() { return this.#last; }
}

class Session {
    #id;
    #variables;
    #rawVariables;

    constructor(id) {
        this.#id = id;
        this.#variables = own.variables.variablesOf(id);
        this.#rawVariables = own.variables.rawVariablesOf(id);
    }

    get [Symbol.toStringTag]() { return 'Stream Session'; }
    get remoteAddress() { return native.text(this.#id, 4); }
    get status() { return native.status(this.#id); }
    get variables() { return this.#variables; }
    get rawVariables() { return this.#rawVariables; }

    #log(level, values) {
        values.forEach((it) => native.logOf(this.#id, level, own.dump(it).toWellFormed()));
    }
    log(...values) { this.#log(own.levels.INFO, values); }
    warn(...values) { this.#log(own.levels.WARN, values); }
    error(...values) { this.#log(own.levels.ERR, values); }

    allow(code) { decide(this.#id, OK, code); }
    done(code) { decide(this.#id, OK, code); }
    decline(code) { decide(this.#id, DECLINED, code); }
    deny(code) { decide(this.#id, FORBIDDEN, code); }

    on(name, callback) {
        const [side, isBuffer] = eventOf(name);
        const others = handlers.filter((it) => it !== undefined);
        if (others.some((it) => it.isBuffer !== isBuffer)) {
            throw new TypeError('mixing string and buffer events is not allowed');
        }
        if (handlers[side] !== undefined) {
            throw new TypeError(`event handler "${name}" is already set`);
        }
        if (typeof callback !== 'function') {
            throw new TypeError('callback is not a function');
        }
        native.sessionListen(this.#id, side, isBuffer);
        handlers[side] = { callback, isBuffer };
    }
    off(name) { forget(this.#id, eventOf(name)[0]); }

    send(data, flags) { send(this.#id, data, flags); }
    sendUpstream(data, flags) { send(this.#id, data, flags, CLIENT); }
    sendDownstream(data, flags) { send(this.#id, data, flags, PEER); }

    setReturnValue(value) { own.returned = { isSet: true, value }; }
    jsVarNames(prefix) { return own.variables.varNames(this.#id, prefix); }
}

own.found.session = function (id) {
    if (session === undefined || session.id !== id) {
        session = { id, object: new Session(id) };
    }
    current = undefined;
    return session.object;
};

// From here on a function may send.
own.filters = function () { isFiltering = true; };

// Bytes of a side, for the function that waits for them.
own.event = function (side, data, isLast) {
    const handler = handlers[side];
    if (handler === undefined) {
        return;
    }
    current = side;
    handler.callback(own.fromNative(data), new Flags(side, isLast));
};

// The end of an operation is nobody's bytes.
const resume = own.resume;
own.resume = function (id, reply) {
    current = undefined;
    resume(id, reply);
};

const clear = own.reset;
own.reset = function () {
    handlers = [undefined, undefined];
    isFiltering = false;
    current = undefined;
    session = undefined;
    clear();
};
