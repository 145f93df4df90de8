// What every context begins with, in front of the request. The first parts are the body of one
// function, which gets `native` and `own`; each of the later ones is one of its own.

const toHex = Uint8Array.prototype.toHex;
const fromHex = Uint8Array.fromHex;
const isView = ArrayBuffer.isView;

// A text, or bytes as hexadecimal digits in an array: the form in which values leave a script.
own.raw = function (value) {
    if (value === null || value === undefined) {
        return '';
    }
    if (isView(value)) {
        return [toHex.call(new Uint8Array(value.buffer, value.byteOffset, value.byteLength))];
    }
    if (value instanceof ArrayBuffer) {
        return [toHex.call(new Uint8Array(value))];
    }
    return String(value).toWellFormed();
};

own.hex = (view) => toHex.call(view);
own.unhex = (text) => fromHex(text);

own.describe = function (error) {
    try {
        if (error instanceof Error) {
            return `${error.name}: ${error.message}\n${error.stack}`.toWellFormed();
        }
        return own.dump(error).toWellFormed();
    } catch (_) {
        return 'an exception that cannot be told';
    }
};

own.dump = function (value, indent) {
    if (typeof value === 'string') {
        return value;
    }
    return inspect(value, indent === undefined ? 0 : indent, '', []);
};

function inspect(value, indent, margin, seen) {
    switch (typeof value) {
    case 'string':
        return `'${value.replace(/\\/g, '\\\\').replace(/'/g, "\\'").replace(/\n/g, '\\n')}'`;
    case 'function':
        return `[Function: ${value.name || 'native'}]`.replace(': native]', ' (native)]');
    case 'object':
        break;
    case 'bigint':
        return `${value}n`;
    default:
        return String(value);
    }
    if (value === null) {
        return 'null';
    }
    if (value instanceof Error || value instanceof RegExp) {
        return String(value);
    }
    if (value instanceof Date) {
        return value.toISOString();
    }
    if (seen.length > 15 || seen.includes(value)) {
        return '[Circular]';
    }
    const inner = seen.concat([value]);
    const next = margin + ' '.repeat(indent);
    const child = (item) => inspect(item, indent, next, inner);
    if (isView(value)) {
        const name = value.constructor ? value.constructor.name : 'Uint8Array';
        return `${name} [${Array.from(value).join(',')}]`;
    }
    if (Array.isArray(value)) {
        return enclose(value.map(child), '[]', indent, margin);
    }
    const tag = value[Symbol.toStringTag];
    const name = tag && tag !== 'Object' ? `${tag} ` : '';
    const pairs = Object.keys(value).map((key) => {
        const shown = /^[A-Za-z_$][A-Za-z0-9_$]*$/.test(key) ? key : `'${key}'`;
        return `${shown}:${indent ? ' ' : ''}${child(value[key])}`;
    });
    return name + enclose(pairs, '{}', indent, margin);
}

function enclose(items, ends, indent, margin) {
    if (items.length === 0) {
        return ends;
    }
    if (!indent) {
        return ends[0] + items.join(',') + ends[1];
    }
    const step = margin + ' '.repeat(indent);
    return `${ends[0]}\n${step}${items.join(`,\n${step}`)}\n${margin}${ends[1]}`;
}

function log(level, value) {
    native.log(level, own.dump(value).toWellFormed());
}

const INFO = 0, WARN = 1, ERR = 2;
own.levels = { INFO, WARN, ERR };
own.log = log;

const define = (target, name, value) => Object.defineProperty(target, name, {
    value, writable: true, configurable: true, enumerable: false,
});
own.define = define;

let atExit;

const njs = {
    version: '1.0.1',
    version_number: 0x010001,
    engine: 'QuickJS',
    dump: (value, indent) => own.dump(value, indent),
    on(event, callback) {
        if (event !== 'exit') {
            throw new TypeError(`unknown event "${String(event)}"`);
        }
        if (typeof callback !== 'function') {
            throw new TypeError('callback is not a function');
        }
        atExit = callback;
    },
    memoryStats: undefined,
};
Object.defineProperty(njs, Symbol.toStringTag, { value: 'njs' });
define(globalThis, 'njs', njs);

// Operations that this context waits for, by number.
const waiting = new Map();
let lastNumber = 0;

own.begin = function (start, done) {
    lastNumber = (lastNumber + 1) >>> 0;
    const id = lastNumber;
    start(id);
    waiting.set(id, done);
    return id;
};

define(globalThis, 'setTimeout', function setTimeout(callback, delay, ...args) {
    if (typeof callback !== 'function') {
        throw new TypeError('first arg must be a function');
    }
    const time = delay === undefined ? 0 : Number(delay);
    const bounded = Number.isFinite(time) && time > 0 ? Math.min(time, 0x7fffffff) : 0;
    return own.begin((id) => native.timer(id, bounded), () => callback(...args));
});
define(globalThis, 'setImmediate', function setImmediate(callback, ...args) {
    return setTimeout(callback, 0, ...args);
});
define(globalThis, 'clearTimeout', function clearTimeout(id) {
    if (waiting.delete(id)) {
        native.cancel(id);
    }
});

// The end of an operation.
own.resume = function (id, reply) {
    const done = waiting.get(id);
    waiting.delete(id);
    if (done !== undefined) {
        done(reply);
    }
};

// Rejections that nobody has handled so far.
const rejected = new Map();
own.track = function (promise, reason, isHandled) {
    if (isHandled) {
        rejected.delete(promise);
    } else if (rejected.size < 16) {
        rejected.set(promise, reason);
    }
};

let main;

function find(path) {
    const [name, ...rest] = path.split('.');
    let value = own.imports[name];
    for (const part of rest) {
        value = value === undefined || value === null ? undefined : value[part];
    }
    if (typeof value !== 'function') {
        throw new ReferenceError(`js function "${path}" not found`);
    }
    return value;
}

// The first argument of a call of this kind.
function subject(id, kind) {
    switch (kind) {
    case TICK:
        return own.periodic(id);
    case SESSION:
    case FILTER:
        return own.session(id);
    default:
        return own.request(id);
    }
}

// Calls a function of the program with the request and what else it gets.
own.enter = function (path, rid, data, flags, kind) {
    main = { isSettled: false, value: undefined, isRuling: kind === RULING };
    // Operations end with the call that has begun them.
    waiting.clear();
    own.returned = { isSet: false, value: undefined };
    const own_main = main;
    const request = subject(rid, kind);
    const args = data === undefined ? [request] : [request, own.fromNative(data), flags];
    const value = find(path)(...args);
    if (kind === FILTER) {
        own.filters();
    }
    if (value instanceof Promise) {
        value.then(
            (it) => { own_main.isSettled = true; own_main.value = it; },
            (error) => { own_main.error = { reason: error }; },
        );
    } else {
        main.isSettled = true;
        main.value = value;
    }
};

// A verdict of `js_cache_verdict`, from what a function has returned.
function rulingOf(value) {
    const made = { out: value === false, tags: [] };
    if (value === undefined || value === null || typeof value === 'boolean') {
        return made;
    }
    if (typeof value !== 'object') {
        throw new TypeError('a verdict is an object, or false');
    }
    const list = (name) => {
        const items = Array.isArray(value[name]) ? value[name] : [value[name]];
        if (!items.every((item) => typeof item === 'string')) {
            throw new TypeError(`"${name}" of a verdict is not a text or several`);
        }
        return items.map((item) => item.toWellFormed());
    };
    for (const name of Object.keys(value)) {
        const part = value[name];
        if (part === undefined) {
            continue;
        }
        if (name === 'store' && typeof part === 'boolean') {
            made.out = !part;
        } else if ((name === 'ttl' || name === 'stale') && typeof part === 'number' && part >= 0) {
            made[name] = Math.min(Math.floor(part), 0x7fffffff);
        } else if (name === 'tags') {
            made.tags = list(name);
        } else if (name === 'vary') {
            made.vary = list(name).join(', ');
        } else {
            throw new TypeError(`"${name}" of a verdict is not what it should be`);
        }
    }
    return made;
}

// The kinds of calls that are no plain ones.
const RULING = 1, TICK = 2, SESSION = 3, FILTER = 4;

const DONE = 0, WAITS = 1, REJECTED = 2, STUCK = 3, RULED = 4;

// What has become of the call.
own.state = function () {
    if (main && main.error) {
        return [REJECTED, own.describe(main.error.reason)];
    }
    for (const reason of rejected.values()) {
        native.unhandled(own.describe(reason));
    }
    rejected.clear();
    if (waiting.size > 0) {
        return [WAITS];
    }
    if (!main || !main.isSettled) {
        return [STUCK];
    }
    if (main.isRuling) {
        return [RULED, rulingOf(main.value)];
    }
    const value = own.returned.isSet ? own.returned.value : main.value;
    return [DONE, own.raw(value)];
};

// A value of `js_preload_object`, which nobody changes.
own.preload = function (name, text) {
    const value = JSON.parse(text, (_, part) => {
        if (typeof part !== 'object' || part === null) {
            return part;
        }
        return Object.freeze(Array.isArray(part) ? part : Object.setPrototypeOf(part, null));
    });
    Object.defineProperty(globalThis, name, { value, enumerable: true });
};

// The end of the request: nothing of it can be asked any more.
own.exit = function () {
    const callback = atExit;
    atExit = undefined;
    if (callback !== undefined) {
        callback();
    }
};

// Makes the context ready for another request; nothing of the last one may be left.
own.reset = function () {
    atExit = undefined;
    main = undefined;
    waiting.clear();
    rejected.clear();
    own.returned = { isSet: false, value: undefined };
};
own.returned = { isSet: false, value: undefined };
