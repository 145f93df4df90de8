// querystring, crypto.

const escape = (value) => encodeURIComponent(String(value).toWellFormed());

function unescape(text) {
    if (!/[%+]/.test(text)) {
        return text;
    }
    try {
        return decodeURIComponent(text);
    } catch (_) {
        const bytes = native.encode(text.toWellFormed());
        const made = [];
        for (let at = 0; at < bytes.length; at++) {
            const digits = String.fromCharCode(bytes[at + 1], bytes[at + 2]);
            if (bytes[at] === 37 && /^[0-9a-fA-F]{2}$/.test(digits)) {
                made.push(parseInt(digits, 16));
                at += 2;
            } else {
                made.push(bytes[at]);
            }
        }
        return native.decode(own.hex(Uint8Array.from(made)));
    }
}

const querystring = {
    escape,
    unescape,
    parse(text, separator, equals, options) {
        const made = Object.create(null);
        const between = separator ? String(separator) : '&';
        const sign = equals ? String(equals) : '=';
        const given = options && options.maxKeys;
        const most = given === undefined ? 1000 : given;
        const decode = (options && options.decodeURIComponent) || querystring.unescape;
        let count = 0;
        if (typeof text !== 'string' || text === '') {
            return made;
        }
        for (const part of text.split(between)) {
            if (most > 0 && count++ >= most) {
                break;
            }
            if (part === '') {
                continue;
            }
            const at = part.indexOf(sign);
            const [left, right] = at < 0
                ? [part, ''] : [part.slice(0, at), part.slice(at + sign.length)];
            const name = decode(left.replace(/\+/g, ' '));
            const value = decode(right.replace(/\+/g, ' '));
            if (!(name in made)) {
                made[name] = value;
            } else if (Array.isArray(made[name])) {
                made[name].push(value);
            } else {
                made[name] = [made[name], value];
            }
        }
        return made;
    },
    stringify(object, separator, equals, options) {
        if (object === null || typeof object !== 'object') {
            return '';
        }
        const between = separator ? String(separator) : '&';
        const sign = equals ? String(equals) : '=';
        const encode = (options && options.encodeURIComponent) || querystring.escape;
        const text = (value) => {
            switch (typeof value) {
            case 'string': case 'boolean': case 'bigint':
                return encode(String(value));
            case 'number':
                return Number.isFinite(value) ? encode(String(value)) : '';
            default:
                return '';
            }
        };
        const pairs = [];
        for (const name of Object.keys(object)) {
            const values = Array.isArray(object[name]) ? object[name] : [object[name]];
            values.forEach((value) => pairs.push(`${encode(name)}${sign}${text(value)}`));
        }
        return pairs.join(between);
    },
};
querystring.decode = querystring.parse;
querystring.encode = querystring.stringify;
own.modules.querystring = querystring;

const ALGORITHMS = ['md5', 'sha1', 'sha256', 'sha384', 'sha512'];

function algorithmOf(name) {
    const known = String(name).toLowerCase();
    if (typeof name !== 'string' || !ALGORITHMS.includes(known)) {
        throw new TypeError(`not supported algorithm: "${name}"`);
    }
    return known;
}

class Digest {
    #parts = [];
    #isDone = false;
    #finish;
    #tag;
    constructor(finish, tag) {
        this.#finish = finish;
        this.#tag = tag;
    }
    get [Symbol.toStringTag]() { return this.#tag; }
    update(data, encoding) {
        const view = own.view(data, encoding);
        if (view === undefined) {
            throw new TypeError('data is not a string or Buffer-like object');
        }
        if (this.#isDone) {
            throw new TypeError('Digest already called');
        }
        this.#parts.push(own.hex(view));
        return this;
    }
    digest(encoding) {
        if (this.#isDone) {
            throw new TypeError('Digest already called');
        }
        if (encoding !== undefined && !['hex', 'base64', 'base64url'].includes(encoding)) {
            throw new TypeError(`Unknown digest encoding: "${encoding}"`);
        }
        this.#isDone = true;
        const bytes = own.buffer(this.#finish(this.#parts.join('')));
        return encoding === undefined ? bytes : own.textOf(bytes, encoding);
    }
    copy() {
        if (this.#isDone) {
            throw new TypeError('Digest already called');
        }
        const made = new Digest(this.#finish, this.#tag);
        made.#parts = this.#parts.slice();
        return made;
    }
}

own.modules.crypto = {
    createHash(algorithm) {
        const name = algorithmOf(algorithm);
        return new Digest((hex) => native.digest(name, hex), 'Hash');
    },
    createHmac(algorithm, key) {
        const name = algorithmOf(algorithm);
        const secret = own.view(key);
        if (secret === undefined) {
            throw new TypeError('key is not a string or Buffer-like object');
        }
        const digits = own.hex(secret);
        return new Digest((hex) => native.keyed(name, digits, hex), 'Hmac');
    },
};

const crypto = {
    get [Symbol.toStringTag]() { return 'Crypto'; },
    getRandomValues(view) {
        if (!isView(view) || view instanceof DataView) {
            throw new TypeError('expected an integer TypedArray');
        }
        if (view.byteLength > 65536) {
            throw new TypeError('requested length exceeds 65536 bytes');
        }
        new Uint8Array(view.buffer, view.byteOffset, view.byteLength)
            .set(native.random(view.byteLength));
        return view;
    },
    randomUUID() {
        const bytes = native.random(16);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        const hex = own.hex(bytes);
        return [[0, 8], [8, 12], [12, 16], [16, 20], [20, 32]]
            .map(([start, end]) => hex.slice(start, end)).join('-');
    },
};
own.define(globalThis, 'crypto', crypto);
