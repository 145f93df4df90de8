// Bytes and texts, and what stands for them.

const ENCODINGS = ['utf8', 'utf-8', 'hex', 'base64', 'base64url'];

function encodingOf(encoding) {
    const name = encoding === undefined ? 'utf8' : String(encoding);
    if (!ENCODINGS.includes(name)) {
        throw new TypeError(`"${name}" encoding is not supported`);
    }
    return name;
}

function bytesOf(text, encoding) {
    switch (encodingOf(encoding)) {
    case 'hex': {
        const digits = /^(?:[0-9a-fA-F]{2})*/.exec(text)[0];
        return Uint8Array.fromHex(digits);
    }
    case 'base64':
    case 'base64url': {
        let clean = text.replace(/-/g, '+').replace(/_/g, '/').replace(/[^A-Za-z0-9+/]/g, '');
        if (clean.length % 4 === 1) {
            clean = clean.slice(0, -1);
        }
        return Uint8Array.fromBase64(clean, { lastChunkHandling: 'loose' });
    }
    default:
        return native.encode(text.toWellFormed());
    }
}

function textOf(view, encoding) {
    switch (encodingOf(encoding)) {
    case 'hex':
        return own.hex(view);
    case 'base64':
        return toBase64.call(view);
    case 'base64url':
        return toBase64.call(view, { alphabet: 'base64url', omitPadding: true });
    default:
        return native.decode(own.hex(view));
    }
}

const toBase64 = Uint8Array.prototype.toBase64;
own.textOf = textOf;
own.bytesOf = bytesOf;
own.encodings = ENCODINGS;

// Bytes of what may stand for them: a text, a view, an ArrayBuffer.
own.view = function (value, encoding) {
    if (typeof value === 'string') {
        return bytesOf(value, encoding);
    }
    if (isView(value)) {
        return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    }
    if (value instanceof ArrayBuffer) {
        return new Uint8Array(value);
    }
    return undefined;
};

own.buffer = (view) => own.part('buffer', 'wrap')(view);
own.fromNative = (data) => (typeof data === 'string' ? data : own.buffer(data));
