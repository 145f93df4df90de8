// The module `crypto`, and the global of its name.

const { isView } = own.shared;

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

own.found.module = {
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
Object.defineProperty(crypto, 'subtle', {
    get: () => own.part('subtle', 'subtle'), enumerable: true, configurable: true,
});
own.found.crypto = crypto;
