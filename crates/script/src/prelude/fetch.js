// ngx.fetch, and its Headers, Request and Response.

const { namesOf } = own.shared;
const { bytesOf, textOf } = own;

const FREE = 0, FIXED = 1;

// The fields of each Headers: what stands in front of them is a proxy, which shows them as
// properties.
const lists = new WeakMap();

function listOf(headers) {
    const list = lists.get(headers);
    if (list === undefined) {
        throw new TypeError('"this" is not fetch headers object');
    }
    return list;
}

function checkName(name) {
    if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name)) {
        throw new TypeError('invalid header name');
    }
}

function change(list, name, value, isInPlace) {
    const text = value.replace(/^[ \t]+|[ \t]+$/g, '');
    checkName(name);
    if (/[\x00-\x08\x0a-\x1f\x7f]/.test(text)) {
        throw new TypeError('invalid header value');
    }
    if (list.guard === FIXED) {
        throw new TypeError('cannot modify immutable object');
    }
    const lower = name.toLowerCase();
    const first = isInPlace ? list.fields.find(([own]) => own.toLowerCase() === lower) : undefined;
    if (first === undefined) {
        list.fields.push([name, text]);
        return;
    }
    first[1] = text;
    list.fields = list.fields.filter((it) => it === first || it[0].toLowerCase() !== lower);
}

function all(list, name) {
    const lower = String(name).toLowerCase();
    return list.fields.filter(([own]) => own.toLowerCase() === lower).map(([, value]) => value);
}

function joined(list, name) {
    const found = all(list, name);
    return found.length ? found.join(', ') : null;
}

function fill(list, init) {
    const other = lists.get(init);
    if (other !== undefined) {
        other.fields.forEach(([name, value]) => list.fields.push([name, value]));
        return;
    }
    const append = (name, value) => change(list, String(name), String(value), false);
    if (Array.isArray(init)) {
        for (const pair of init) {
            if (!Array.isArray(pair) || pair.length !== 2) {
                throw new TypeError('header does not contain exactly two items');
            }
            append(pair[0], pair[1]);
        }
    } else {
        Object.keys(init).forEach((name) => append(name, init[name]));
    }
}

const isObject = (value) => typeof value === 'object' && value !== null;

function headersOf(list) {
    const isField = (target, name) => typeof name === 'string' && !(name in target)
        && joined(list, name) !== null;
    const made = new Proxy(Object.create(Headers.prototype), {
        get: (target, name, self) => (isField(target, name)
            ? joined(list, name) : Reflect.get(target, name, self)),
        has: (target, name) => isField(target, name) || Reflect.has(target, name),
        ownKeys: (target) => [...new Set([...namesOf(list.fields), ...Reflect.ownKeys(target)])],
        getOwnPropertyDescriptor: (target, name) => (isField(target, name)
            ? { value: joined(list, name), enumerable: true, configurable: true, writable: false }
            : Reflect.getOwnPropertyDescriptor(target, name)),
        preventExtensions: () => false,
        defineProperty: (target, name, descriptor) => !isField(target, name)
            && Reflect.defineProperty(target, name, { ...descriptor, configurable: true }),
    });
    lists.set(made, list);
    return made;
}

class Headers {
    constructor(init) {
        const list = { guard: FREE, fields: [] };
        if (isObject(init)) {
            fill(list, init);
        }
        return headersOf(list);
    }
    get [Symbol.toStringTag]() { return 'Headers'; }
    append(name, value) { change(listOf(this), String(name), String(value), false); }
    set(name, value) { change(listOf(this), String(name), String(value), true); }
    delete(name) {
        const list = listOf(this);
        checkName(String(name));
        if (list.guard === FIXED) {
            throw new TypeError('cannot modify immutable object');
        }
        const lower = String(name).toLowerCase();
        list.fields = list.fields.filter(([own]) => own.toLowerCase() !== lower);
    }
    get(name) { return joined(listOf(this), name); }
    getAll(name) { return all(listOf(this), name); }
    has(name) { return joined(listOf(this), name) !== null; }
    forEach(callback) {
        const list = listOf(this);
        if (typeof callback !== 'function') {
            throw new TypeError('"callback" is not a function');
        }
        namesOf(list.fields).sort().forEach((name) => callback(name, joined(list, name)));
    }
}
own.found.Headers = Headers;

const CHOICES = {
    cache: ['default', 'no-store', 'reload', 'no-cache', 'force-cache', 'only-if-cached'],
    credentials: ['same-origin', 'omit', 'include'],
    mode: ['no-cors', 'cors', 'same-origin', 'navigate', 'websocket'],
};

function methodOf(value) {
    const method = String(value).toWellFormed();
    if (method === '' || /[\x00-\x20\x7f]/.test(method)) {
        throw new TypeError('invalid Request method');
    }
    const upper = method.toUpperCase();
    if (['CONNECT', 'TRACE', 'TRACK'].includes(upper)) {
        throw new TypeError(`forbidden method: ${upper}`);
    }
    return ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT'].includes(upper) ? upper : method;
}

// The bytes of a body, which nobody else changes.
function bodyOf(value) {
    const view = own.view(value);
    return view === undefined ? bytesOf(String(value).toWellFormed()) : new Uint8Array(view);
}

function describe(list, value) {
    if (typeof value === 'string' && joined(list, 'Content-Type') === null) {
        list.fields.push(['Content-Type', 'text/plain;charset=UTF-8']);
    }
}

// What a request consists of, from what Request and ngx.fetch are given.
function asked(input, init) {
    if (input === undefined) {
        throw new TypeError('1st argument is required');
    }
    const state = { method: 'GET', list: { guard: FREE, fields: [] }, body: undefined,
        isUsed: false, cache: 'default', credentials: 'same-origin', mode: 'no-cors' };
    if (typeof input === 'string') {
        state.url = input.toWellFormed().replace(/^[\x00-\x20]+|[\x00-\x20]+$/g, '');
    } else {
        const other = FetchRequest.stateOf(input);
        if (other === undefined) {
            throw new TypeError('input is not string or a Request object');
        }
        Object.assign(state, other, { headers: undefined });
        state.list = { guard: FREE, fields: other.list.fields.map((pair) => pair.slice()) };
    }
    native.checkUrl(state.url);
    if (!isObject(init)) {
        return state;
    }
    if (init.method !== undefined) {
        state.method = methodOf(init.method);
    }
    for (const name of Object.keys(CHOICES)) {
        if (init[name] !== undefined) {
            const value = String(init[name]);
            if (!CHOICES[name].includes(value)) {
                throw new TypeError(`unknown ${name} type: ${value}`);
            }
            state[name] = value;
        }
    }
    if (init.headers !== undefined) {
        if (!isObject(init.headers)) {
            throw new TypeError('Headers is not an object');
        }
        state.list = { guard: FREE, fields: [] };
        fill(state.list, init.headers);
    }
    if (init.body !== undefined) {
        state.body = bodyOf(init.body);
        describe(state.list, init.body);
    }
    return state;
}

// The bytes of a body, once.
function taken(state) {
    if (state.isUsed) {
        throw new TypeError('body stream already read');
    }
    state.isUsed = true;
    return state.body === undefined ? new Uint8Array(0) : state.body;
}

class WithBody {
    #state;
    constructor(state) { this.#state = state; }
    static stateOf(value) { return isObject(value) && #state in value ? value.#state : undefined; }
    get url() { return this.#state.url; }
    get bodyUsed() { return this.#state.isUsed; }
    get headers() {
        const state = this.#state;
        if (state.headers === undefined) {
            state.headers = headersOf(state.list);
        }
        return state.headers;
    }
    async text() { return textOf(taken(this.#state), 'utf8'); }
    async json() { return JSON.parse(textOf(taken(this.#state), 'utf8')); }
    async arrayBuffer() { return taken(this.#state).slice().buffer; }
}

class FetchRequest extends WithBody {
    constructor(input, init) { super(asked(input, init)); }
    static stateOf(value) {
        return value instanceof FetchRequest ? WithBody.stateOf(value) : undefined;
    }
    get [Symbol.toStringTag]() { return 'Request'; }
    get method() { return WithBody.stateOf(this).method; }
    get cache() { return WithBody.stateOf(this).cache; }
    get credentials() { return WithBody.stateOf(this).credentials; }
    get mode() { return WithBody.stateOf(this).mode; }
}

class FetchResponse extends WithBody {
    constructor(body, init) { super(FetchResponse.#made(body, init)); }
    static #made(body, init) {
        // What was fetched comes as it is.
        if (init === lists) {
            return body;
        }
        const list = { guard: FREE, fields: [] };
        const state = { url: '', status: 200, statusText: '', list, isUsed: false };
        if (isObject(init)) {
            if (init.status !== undefined) {
                state.status = Math.trunc(Number(init.status)) || 0;
                if (state.status < 200 || state.status > 599) {
                    throw new RangeError(
                        `status provided (${state.status}) is outside of [200, 599] range`);
                }
            }
            if (init.statusText !== undefined) {
                state.statusText = String(init.statusText);
                if (/[\x00-\x08\x0a-\x1f]/.test(state.statusText)) {
                    throw new TypeError('invalid Response statusText');
                }
            }
            if (init.headers !== undefined) {
                if (!isObject(init.headers)) {
                    throw new TypeError('Headers is not an object');
                }
                fill(list, init.headers);
            }
        }
        if (body !== undefined && body !== null) {
            state.body = bodyOf(body);
            describe(list, body);
        }
        return state;
    }
    get [Symbol.toStringTag]() { return 'Response'; }
    get status() { return WithBody.stateOf(this).status; }
    get statusText() { return WithBody.stateOf(this).statusText; }
    get ok() { return this.status >= 200 && this.status < 300; }
    get redirected() { return false; }
    get type() { return 'basic'; }
}
for (const [name, made] of [['Request', FetchRequest], ['Response', FetchResponse]]) {
    Object.defineProperty(made, 'name', { value: name });
    own.found[name] = made;
}

// A number among the options of ngx.fetch; less than nothing where it is not told.
function sizeOption(value) {
    const size = value === undefined ? -1 : Math.trunc(Number(value));
    return Number.isFinite(size) ? size : -1;
}

own.found.fetch = function fetch(input, init) {
    // Made here, so that its stack is that of who asks.
    const failure = new Error();
    return new Promise((resolve, reject) => {
        const state = asked(input, init);
        const given = isObject(init) ? init : {};
        const verify = given.verify === undefined ? -1 : Number(Boolean(given.verify));
        const most = sizeOption(given.max_response_body_size);
        own.begin(
            (id) => native.fetch(id, [state.url, state.method.toWellFormed()],
                state.list.fields.map((pair) => pair.map((it) => it.toWellFormed())),
                own.raw(state.body), most, verify),
            (answer) => {
                if (answer.error !== undefined) {
                    own.define(failure, 'message', answer.error);
                    return reject(failure);
                }
                return resolve(new FetchResponse({
                    url: state.url, status: answer.status, statusText: answer.text,
                    list: { guard: FIXED, fields: answer.headers }, body: answer.body,
                    isUsed: false,
                }, lists));
            },
        );
    });
};
