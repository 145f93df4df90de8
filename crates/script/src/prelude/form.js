// r.readRequestForm(): bodies of HTML forms.

const MOST_KEYS = 128;
const MOST_HEADERS = 16384, MOST_LINE = 4096, MOST_LINES = 32, MOST_BOUNDARY = 200;

const wrong = (message) => new TypeError(message);

// Bytes as a text of as many characters.
function latin(bytes) {
    let text = '';
    for (let at = 0; at < bytes.length; at += 8192) {
        text += String.fromCharCode.apply(null, bytes.subarray(at, at + 8192));
    }
    return text;
}

const utf8 = (bytes) => own.textOf(bytes, 'utf8');

class RequestForm {
    #entries;
    constructor(entries) { this.#entries = entries; }
    get [Symbol.toStringTag]() { return 'RequestForm'; }
    get(name) {
        const found = this.#entries.find(([key]) => key === String(name));
        return found === undefined ? null : found[1];
    }
    getAll(name) {
        return this.#entries.filter(([key]) => key === String(name)).map(([, value]) => value);
    }
    has(name) { return this.#entries.some(([key]) => key === String(name)); }
    hasFiles() { return this.#entries.some(([, value]) => typeof value !== 'string'); }
    forEach(callback, self) {
        if (typeof callback !== 'function') {
            throw wrong('callback is not a function');
        }
        this.#entries.slice().forEach(([key, value]) => callback.call(self, value, key, this));
    }
}

// Calls `take` with each parameter behind a value: `; name=value; name="value"`.
function parameters(text, malformed, take) {
    let at = 0;
    const skip = () => { while (text[at] === ' ' || text[at] === '\t') { at++; } };
    for (skip(); at < text.length; skip()) {
        if (text[at] !== ';') {
            throw wrong(malformed);
        }
        at++;
        skip();
        const [name] = /^[^=;"\s]*/.exec(text.slice(at));
        at += name.length;
        if (name === '' || text[at] !== '=') {
            throw wrong('malformed parameter');
        }
        at++;
        let value = '';
        if (text[at] === '"') {
            for (at++; text[at] !== '"'; at++) {
                if (text[at] === '\\') {
                    at++;
                }
                if (at >= text.length) {
                    throw wrong('unterminated quoted parameter');
                }
                value += text[at];
            }
            at++;
        } else {
            [value] = /^[^;\s]*/.exec(text.slice(at));
            at += value.length;
            if (value === '') {
                throw wrong('empty parameter value');
            }
        }
        take(name.toLowerCase(), value);
    }
}

function unescaped(text) {
    const bytes = [];
    for (let at = 0; at < text.length; at++) {
        if (text[at] !== '%') {
            bytes.push(text[at] === '+' ? 32 : text.charCodeAt(at));
            continue;
        }
        const digits = text.slice(at + 1, at + 3);
        if (!/^[0-9a-fA-F]{2}$/.test(digits)) {
            throw wrong('malformed percent escape');
        }
        bytes.push(parseInt(digits, 16));
        at += 2;
    }
    return utf8(Uint8Array.from(bytes));
}

function urlencoded(bytes, add) {
    for (const part of latin(bytes).split('&')) {
        if (part !== '') {
            const sign = part.indexOf('=');
            const end = sign < 0 ? part.length : sign;
            add(unescaped(part.slice(0, end)), unescaped(part.slice(end + 1)));
        }
    }
}

// What the lines before a part say of it: its name, and that of its file.
function disposition(head) {
    const lines = head === '' ? [] : head.split('\r\n');
    if (lines.some((line) => line.length > MOST_LINE)) {
        throw wrong('multipart header line is too long');
    }
    if (lines.length > MOST_LINES) {
        throw wrong('too many multipart headers');
    }
    let found;
    for (const line of lines) {
        const colon = line.indexOf(':');
        if (colon < 1) {
            throw wrong('malformed multipart header');
        }
        if (line.slice(0, colon).toLowerCase() === 'content-disposition') {
            if (found !== undefined) {
                throw wrong('duplicate Content-Disposition header');
            }
            found = line.slice(colon + 1).trim();
        }
    }
    if (found === undefined) {
        throw wrong('missing Content-Disposition header');
    }
    const [type] = /^[^;\s]*/.exec(found);
    if (type.toLowerCase() !== 'form-data') {
        throw wrong('unsupported disposition type');
    }
    const known = {};
    parameters(found.slice(type.length), 'malformed Content-Disposition', (name, value) => {
        if (name === 'name' || name === 'filename') {
            if (known[name] !== undefined) {
                throw wrong(`duplicate ${name} parameter`);
            }
            known[name] = utf8(Uint8Array.from(value, (c) => c.charCodeAt(0)));
        }
    });
    if (known.name === undefined) {
        throw wrong('multipart field name is required');
    }
    return known;
}

function multipart(bytes, boundary, add) {
    const text = latin(bytes);
    const mark = `--${boundary}`;
    if (!text.startsWith(mark)) {
        throw wrong('malformed multipart body');
    }
    for (let at = mark.length; !text.startsWith('--', at);) {
        if (!text.startsWith('\r\n', at)) {
            throw wrong('malformed multipart boundary');
        }
        const start = at + 2;
        const end = text.startsWith('\r\n', start) ? start - 2 : text.indexOf('\r\n\r\n', start);
        if (end < 0) {
            throw wrong('missing multipart header separator');
        }
        if (end - start > MOST_HEADERS) {
            throw wrong('multipart headers are too large');
        }
        const { name, filename } = disposition(text.slice(start, Math.max(start, end)));
        const next = text.indexOf(`\r\n${mark}`, end + 4);
        if (next < 0) {
            throw wrong('truncated multipart body');
        }
        add(name, filename === undefined ? utf8(bytes.subarray(end + 4, next))
            : { name: filename });
        at = next + 2 + mark.length;
    }
}

own.found.form = function (contentType, bytes, options) {
    const given = options === undefined || options === null ? {} : options;
    const most = given.maxKeys === undefined ? MOST_KEYS : Number(given.maxKeys);
    if (typeof given !== 'object' || !(most >= 1)) {
        throw wrong('"maxKeys" is not a positive number');
    }
    if (contentType === undefined || contentType === '') {
        throw wrong('request content type is required');
    }
    const [type] = /^[^;\s]*/.exec(contentType);
    let boundary;
    const isMultipart = type.toLowerCase() === 'multipart/form-data';
    if (!isMultipart && type.toLowerCase() !== 'application/x-www-form-urlencoded') {
        throw wrong('unsupported content type');
    }
    parameters(contentType.slice(type.length), 'malformed content type', (name, value) => {
        if (name === 'boundary') {
            if (boundary !== undefined) {
                throw wrong('duplicate boundary parameter');
            }
            if (value === '' || value.length > MOST_BOUNDARY) {
                throw wrong('invalid multipart boundary');
            }
            boundary = value;
        }
    });
    const entries = [];
    const add = (name, value) => {
        if (entries.length >= most) {
            throw wrong('maxKeys limit exceeded');
        }
        entries.push([name, value]);
    };
    const body = bytes === undefined ? new Uint8Array(0) : bytes;
    if (!isMultipart) {
        urlencoded(body, add);
    } else if (boundary === undefined) {
        throw wrong('multipart boundary is required');
    } else {
        multipart(body, boundary, add);
    }
    return new RequestForm(entries);
};
