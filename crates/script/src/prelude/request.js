// The request `r`, and `ngx`.

const SINGLE_IN = new Set(['content-type', 'etag', 'from', 'max-forwards', 'referer', 'host',
    'proxy-authorization', 'user-agent', 'content-length', 'authorization', 'if-modified-since',
    'if-unmodified-since', 'if-match', 'if-none-match', 'if-range', 'range', 'server',
    'retry-after', 'content-location', 'date', 'expires', 'last-modified', 'location', 'age']);
const SINGLE_OUT = new Set(['age', 'content-encoding', 'content-length', 'content-type', 'date',
    'etag', 'expires', 'last-modified', 'location', 'retry-after', 'server']);

// The value of a field as a script sees it, from all its lines.
function fieldOf(lines, name, single) {
    const wanted = name.toLowerCase();
    const values = lines.filter(([key]) => key.toLowerCase() === wanted).map(([, value]) => value);
    if (wanted === 'set-cookie') {
        return values.length ? values : undefined;
    }
    if (values.length === 0) {
        return undefined;
    }
    if (single.has(wanted)) {
        return values[0];
    }
    return values.join(wanted === 'cookie' ? '; ' : ', ');
}

function namesOf(lines) {
    const seen = new Map();
    for (const [name] of lines) {
        const key = name.toLowerCase();
        if (!seen.has(key)) {
            seen.set(key, name);
        }
    }
    return Array.from(seen.values());
}

function fields(lines, single, set) {
    return new Proxy({}, {
        get(_, name) {
            return typeof name === 'string' ? fieldOf(lines(), name, single) : undefined;
        },
        has(_, name) {
            return typeof name === 'string' && fieldOf(lines(), name, single) !== undefined;
        },
        ownKeys() { return namesOf(lines()); },
        getOwnPropertyDescriptor(_, name) {
            const value = typeof name === 'string' ? fieldOf(lines(), name, single) : undefined;
            return value === undefined ? undefined
                : { value, enumerable: true, configurable: true, writable: true };
        },
        set(_, name, value) {
            if (!set) {
                throw new TypeError(`Cannot assign to read only property "${String(name)}"`);
            }
            set(String(name), value);
            return true;
        },
        defineProperty(_, name, descriptor) {
            if (!set) {
                throw new TypeError(`Cannot assign to read only property "${String(name)}"`);
            }
            set(String(name), descriptor.value);
            return true;
        },
        deleteProperty(_, name) {
            if (set) {
                set(String(name), undefined);
            }
            return true;
        },
    });
}

function values(name, value) {
    let list = Array.isArray(value) ? value : [value];
    list = list.filter((it) => it !== undefined && it !== null).map((it) => own.raw(it))
        .filter((it) => it !== '' && it[0] !== '');
    const lower = name.toLowerCase();
    if (lower === 'content-length' && list.length) {
        const last = list[list.length - 1];
        if (!/^[0-9]+$/.test(last)) {
            throw new TypeError('failed converting argument to positive integer');
        }
    }
    // nginx: of these the last one counts.
    const isLast = ['content-length', 'content-type', 'content-encoding', 'location', 'date',
        'last-modified', 'server', 'age', 'expires', 'retry-after'].includes(lower);
    return isLast ? list.slice(-1) : list;
}

// Variables by their names, as values that `shown` makes of what `read` finds.
function variables(id, read, shown) {
    const value = (name) => (typeof name === 'string' ? shown(read(id, name)) : undefined);
    const set = (_, name, given) => {
        native.setVariable(id, String(name), own.raw(given));
        return true;
    };
    return new Proxy({}, {
        get: (_, name) => value(name),
        has: (_, name) => value(name) !== undefined,
        set,
        defineProperty: (_, name, descriptor) => set(_, name, descriptor.value),
        deleteProperty: () => false,
    });
}

const variablesOf = (id) => variables(id, native.variable, (value) => value);
const rawVariablesOf = (id) => variables(id, native.rawVariable,
    (value) => (value === undefined ? undefined : own.buffer(value)));

// What a function of `js_periodic` gets in place of a request.
class PeriodicSession {
    #id;
    constructor(id) { this.#id = id; }
    get [Symbol.toStringTag]() { return 'PeriodicSession'; }
    get variables() { return variablesOf(this.#id); }
    get rawVariables() { return rawVariablesOf(this.#id); }
}
own.periodic = (id) => new PeriodicSession(id);

// The names that `js_var` has declared, those that begin with a text.
function varNames(id, prefix) {
    if (prefix !== undefined && typeof prefix !== 'string') {
        throw new TypeError('prefix is not a string');
    }
    const start = prefix === undefined ? '' : prefix;
    return native.jsVarNames(id).filter((name) => name.startsWith(start));
}

class Request {
    #id;
    #lists = new Map();
    #properties = new Map();

    constructor(id) { this.#id = id; }

    get [Symbol.toStringTag]() { return 'Request'; }

    #kept(name, make) {
        if (!this.#properties.has(name)) {
            this.#properties.set(name, make());
        }
        return this.#properties.get(name);
    }

    get method() { return native.text(this.#id, 0); }
    get uri() { return native.text(this.#id, 1); }
    get args() {
        return this.#kept('args', () => own.modules.querystring.parse(native.text(this.#id, 2)));
    }
    get httpVersion() { return native.text(this.#id, 3); }
    get remoteAddress() { return native.text(this.#id, 4); }
    get requestLine() { return native.text(this.#id, 5); }
    get internal() { return native.isInternal(this.#id); }
    get parent() { return undefined; }
    get cache() { return this.#kept('cache', () => own.cache(this.#id)); }
    get variables() { return this.#kept('variables', () => variablesOf(this.#id)); }
    get rawVariables() { return this.#kept('rawVariables', () => rawVariablesOf(this.#id)); }
    get headersIn() {
        return this.#kept('in', () => fields(() => native.headersIn(this.#id), SINGLE_IN));
    }
    get headersOut() {
        return this.#kept('out', () => fields(() => native.headersOut(this.#id), SINGLE_OUT,
            (name, value) => native.setHeader(this.#id, name, values(name, value))));
    }
    get rawHeadersIn() { return native.headersIn(this.#id); }
    get rawHeadersOut() { return native.headersOut(this.#id); }
    get status() { return native.status(this.#id); }
    set status(value) { native.setStatus(this.#id, statusOf(value)); }
    get requestBuffer() {
        return this.#kept('buffer', () => {
            const body = native.body(this.#id);
            return body === undefined ? undefined : own.buffer(body);
        });
    }
    get requestText() {
        const body = this.requestBuffer;
        return body === undefined ? undefined : own.textOf(body, 'utf8');
    }
    get requestBody() { return this.requestText; }
    get responseBuffer() { return undefined; }
    get responseText() { return undefined; }
    get responseBody() { return undefined; }

    async readRequestText() { const text = this.requestText; return text === undefined ? '' : text; }
    async readRequestJSON() { return JSON.parse(await this.readRequestText()); }
    async readRequestArrayBuffer() {
        const body = this.requestBuffer;
        return body === undefined ? new ArrayBuffer(0) : body.slice().buffer;
    }

    async readRequestForm(options) {
        return this.#kept('form', () => own.form(this.headersIn['Content-Type'],
            this.requestBuffer, options));
    }

    log(value) { native.logOf(this.#id, own.levels.INFO, own.dump(value).toWellFormed()); }
    warn(value) { native.logOf(this.#id, own.levels.WARN, own.dump(value).toWellFormed()); }
    error(value) { native.logOf(this.#id, own.levels.ERR, own.dump(value).toWellFormed()); }

    sendHeader() { native.sendHeader(this.#id); }
    send(data) { native.send(this.#id, own.raw(data)); }
    sendBuffer(data, flags) {
        if (flags !== undefined && (typeof flags !== 'object' || flags === null)) {
            throw new TypeError('flags is not an object');
        }
        native.sendBuffer(this.#id, own.raw(data));
    }
    done() { native.done(this.#id); }
    finish() { native.finish(this.#id); }
    decline() { native.decline(this.#id); }
    return(status, text) {
        native.return(this.#id, statusOf(status), text === undefined ? undefined : own.raw(text));
    }
    internalRedirect(target) {
        if (target === undefined) {
            throw new TypeError('uri is required');
        }
        native.redirect(this.#id, own.raw(target));
    }
    setReturnValue(value) { own.returned = { isSet: true, value }; }
    jsVarNames(prefix) { return varNames(this.#id, prefix); }

    subrequest(...args) { return own.part('subrequest', 'subrequest')(this, this.#id, args); }
}

function statusOf(value) {
    const status = Number(value);
    if (!Number.isInteger(status)) {
        throw new TypeError('is not a number');
    }
    if (status < 0 || status > 999) {
        throw new RangeError('number is out of range');
    }
    return status;
}

let request;
own.request = function (id) {
    if (request === undefined || request.id !== id) {
        request = { id, object: new Request(id) };
    }
    return request.object;
};
const clear = own.reset;
own.reset = function () {
    request = undefined;
    clear();
};

own.variables = { variablesOf, rawVariablesOf, varNames };
own.shared = { isView, encodingOf, fields, namesOf, SINGLE_OUT };

const ngx = {
    get [Symbol.toStringTag]() { return 'ngx'; },
    get version() { return native.place('version'); },
    get version_number() {
        const [major, minor, patch] = native.place('version').split('.').map(Number);
        return major * 1000000 + minor * 1000 + patch;
    },
    build: 'millpond',
    get prefix() { return native.place('prefix'); },
    get conf_prefix() { return native.place('conf_prefix'); },
    get conf_file_path() { return native.place('conf_file_path'); },
    get error_log_path() { return native.place('error_log_path'); },
    get worker_id() { return native.number(0); },
    INFO: own.levels.INFO,
    WARN: own.levels.WARN,
    ERR: own.levels.ERR,
    log(level, value) {
        if (![0, 1, 2].includes(level)) {
            throw new TypeError('unknown log level');
        }
        own.log(level, value);
    },
};
own.define(globalThis, 'ngx', ngx);
