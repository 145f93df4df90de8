// Buffer, TextEncoder, TextDecoder.

const { isView } = own.shared;
const { bytesOf, textOf, encodings: ENCODINGS } = own;

const isNumber = (value) => typeof value === 'number';

function sizeOf(size) {
    if (!isNumber(size) || !(size >= 0) || size > 0x7fffffff) {
        throw new RangeError('invalid size');
    }
    return Math.floor(size);
}

class Buffer extends Uint8Array {
    static get [Symbol.species]() { return Buffer; }

    static alloc(size, fill, encoding) {
        const made = new Buffer(sizeOf(size));
        return fill === undefined ? made : made.fill(fill, encoding);
    }
    static allocUnsafe(size) { return new Buffer(sizeOf(size)); }
    static allocUnsafeSlow(size) { return new Buffer(sizeOf(size)); }

    static byteLength(value, encoding) {
        const view = own.view(value, encoding);
        if (view === undefined) {
            throw new TypeError('first argument is not a string or Buffer-like object');
        }
        return view.length;
    }

    static compare(one, other) {
        if (!(one instanceof Uint8Array) || !(other instanceof Uint8Array)) {
            throw new TypeError('argument is not a Buffer or Uint8Array object');
        }
        const length = Math.min(one.length, other.length);
        for (let index = 0; index < length; index++) {
            if (one[index] !== other[index]) {
                return one[index] < other[index] ? -1 : 1;
            }
        }
        return Math.sign(one.length - other.length);
    }

    static concat(list, total) {
        if (!Array.isArray(list)) {
            throw new TypeError('"list" argument must be an instance of Array');
        }
        for (const item of list) {
            if (!(item instanceof Uint8Array)) {
                throw new TypeError('"list" argument must be an instance of Buffer or Uint8Array');
            }
        }
        const length = list.reduce((sum, item) => sum + item.length, 0);
        const made = new Buffer(total === undefined ? length : sizeOf(total));
        let at = 0;
        for (const item of list) {
            const part = item.subarray(0, Math.max(0, made.length - at));
            made.set(part, at);
            at += part.length;
        }
        return made;
    }

    static from(value, second, third) {
        if (typeof value === 'string') {
            return wrap(bytesOf(value, second));
        }
        if (value instanceof ArrayBuffer) {
            return new Buffer(value, second, third);
        }
        if (isView(value) || Array.isArray(value)) {
            return wrap(Uint8Array.from(value));
        }
        if (value !== null && typeof value === 'object') {
            if (value.type === 'Buffer' && Array.isArray(value.data)) {
                return wrap(Uint8Array.from(value.data));
            }
            if (typeof value.length === 'number') {
                return wrap(Uint8Array.from(value));
            }
            const plain = value.valueOf();
            if (plain !== value && plain !== null && plain !== undefined) {
                return Buffer.from(plain, second, third);
            }
        }
        throw new TypeError('first argument is not a string or Buffer-like object');
    }

    static isBuffer(value) { return value instanceof Buffer; }
    static isEncoding(name) { return typeof name === 'string' && ENCODINGS.includes(name); }

    compare(target, start, end, from, to) {
        return Buffer.compare(this.subarray(from, to), target.subarray(start, end));
    }

    copy(target, at = 0, start = 0, end = this.length) {
        if (!(target instanceof Uint8Array)) {
            throw new TypeError('argument is not a Buffer or Uint8Array object');
        }
        if (at < 0 || start < 0 || start > this.length || end < 0) {
            throw new RangeError('index is out of range');
        }
        const part = this.subarray(start, end).subarray(0, Math.max(0, target.length - at));
        target.set(part, Math.min(at, target.length));
        return part.length;
    }

    equals(other) { return Buffer.compare(this, other) === 0; }

    fill(value, start, end, encoding) {
        if (typeof start === 'string') {
            [encoding, start] = [start, 0];
        }
        if (typeof end === 'string') {
            [encoding, end] = [end, undefined];
        }
        const view = own.view(value, encoding);
        if (view === undefined) {
            return super.fill(Number(value) & 255, start, end);
        }
        if (view.length === 0) {
            return super.fill(0, start, end);
        }
        const part = this.subarray(start, end);
        for (let index = 0; index < part.length; index++) {
            part[index] = view[index % view.length];
        }
        return this;
    }

    includes(value, from, encoding) { return this.indexOf(value, from, encoding) !== -1; }

    indexOf(value, from, encoding) {
        if (typeof from === 'string') {
            [encoding, from] = [from, 0];
        }
        if (isNumber(value)) {
            return super.indexOf(value & 255, from);
        }
        const view = own.view(value, encoding);
        let start = Math.trunc(Number(from)) || 0;
        start = start < 0 ? Math.max(0, this.length + start) : start;
        for (let at = start; at + view.length <= this.length; at++) {
            if (view.every((byte, index) => this[at + index] === byte)) {
                return at;
            }
        }
        return -1;
    }

    lastIndexOf(value, from, encoding) {
        if (typeof from === 'string') {
            [encoding, from] = [from, undefined];
        }
        if (isNumber(value)) {
            return from === undefined
                ? super.lastIndexOf(value & 255) : super.lastIndexOf(value & 255, from);
        }
        const view = own.view(value, encoding);
        let start = from === undefined ? this.length : Math.trunc(Number(from)) || 0;
        start = start < 0 ? this.length + start : start;
        for (let at = Math.min(start, this.length - view.length); at >= 0; at--) {
            if (view.every((byte, index) => this[at + index] === byte)) {
                return at;
            }
        }
        return -1;
    }

    slice(start, end) { return this.subarray(start, end); }

    swap16() { return swap(this, 2); }
    swap32() { return swap(this, 4); }
    swap64() { return swap(this, 8); }

    toJSON() { return { type: 'Buffer', data: Array.from(this) }; }

    toString(encoding, start, end) { return textOf(this.subarray(start, end), encoding); }

    write(text, at, length, encoding) {
        if (typeof at === 'string') {
            [encoding, at, length] = [at, 0, undefined];
        } else if (typeof length === 'string') {
            [encoding, length] = [length, undefined];
        }
        const start = at === undefined ? 0 : at;
        if (start < 0 || start > this.length) {
            throw new RangeError('"offset" is out of bounds');
        }
        const room = Math.min(this.length - start, length === undefined ? Infinity : length);
        let view = bytesOf(String(text), encoding).subarray(0, room);
        this.set(view, start);
        return view.length;
    }
}

function wrap(view) {
    return new Buffer(view.buffer, view.byteOffset, view.byteLength);
}
own.found.wrap = wrap;

function swap(buffer, size) {
    if (buffer.length % size !== 0) {
        throw new RangeError(`buffer size must be a multiple of ${size * 8}-bits`);
    }
    for (let at = 0; at < buffer.length; at += size) {
        Uint8Array.prototype.reverse.call(buffer.subarray(at, at + size));
    }
    return buffer;
}

// The numbers that can be read and written, on top of DataView.
function number(name, size, get, set, isLittle, check) {
    const view = (buffer, at) => {
        if (!Number.isInteger(at) || at < 0 || at + size > buffer.length) {
            throw new RangeError('index is out of range');
        }
        return new DataView(buffer.buffer, buffer.byteOffset + at, size);
    };
    own.define(Buffer.prototype, `read${name}`, function (at = 0) {
        return view(this, at)[get](0, isLittle);
    });
    own.define(Buffer.prototype, `write${name}`, function (value, at = 0) {
        view(this, at)[set](0, check(value), isLittle);
        return at + size;
    });
}

const same = (value) => value;
for (const [end, isLittle] of [['LE', true], ['BE', false]]) {
    for (const size of [16, 32]) {
        number(`Int${size}${end}`, size / 8, `getInt${size}`, `setInt${size}`, isLittle, same);
        number(`UInt${size}${end}`, size / 8, `getUint${size}`, `setUint${size}`, isLittle, same);
    }
    number(`Float${end}`, 4, 'getFloat32', 'setFloat32', isLittle, same);
    number(`Double${end}`, 8, 'getFloat64', 'setFloat64', isLittle, same);
    for (const sign of ['Int', 'UInt']) {
        variable(sign, end, isLittle);
    }
}
number('Int8', 1, 'getInt8', 'setInt8', true, same);
number('UInt8', 1, 'getUint8', 'setUint8', true, same);

// Integers of one to six bytes.
function variable(sign, end, isLittle) {
    const check = (buffer, at, size) => {
        if (!(size >= 1 && size <= 6)) {
            throw new RangeError('"byteLength" is out of range');
        }
        if (!Number.isInteger(at) || at < 0 || at + size > buffer.length) {
            throw new RangeError('index is out of range');
        }
    };
    own.define(Buffer.prototype, `read${sign}${end}`, function (at, size) {
        check(this, at, size);
        let value = 0;
        for (let index = 0; index < size; index++) {
            value = value * 256 + this[isLittle ? at + size - 1 - index : at + index];
        }
        const top = 2 ** (size * 8 - 1);
        return sign === 'Int' && value >= top ? value - 2 * top : value;
    });
    own.define(Buffer.prototype, `write${sign}${end}`, function (value, at, size) {
        check(this, at, size);
        let rest = value < 0 ? value + 2 ** (size * 8) : value;
        for (let index = 0; index < size; index++) {
            this[isLittle ? at + index : at + size - 1 - index] = rest % 256;
            rest = Math.floor(rest / 256);
        }
        return at + size;
    });
}

for (const name of Object.getOwnPropertyNames(Buffer.prototype)) {
    const short = name.replace('UInt', 'Uint');
    if (short !== name) {
        own.define(Buffer.prototype, short, Buffer.prototype[name]);
    }
}

own.found.Buffer = Buffer;

class TextEncoder {
    get encoding() { return 'utf-8'; }
    get [Symbol.toStringTag]() { return 'TextEncoder'; }
    encode(text) { return native.encode(text === undefined ? '' : String(text).toWellFormed()); }
}

class TextDecoder {
    #isFatal;
    constructor(encoding, options) {
        const name = encoding === undefined ? 'utf-8' : String(encoding);
        if (name !== 'utf-8' && name !== 'utf8') {
            throw new RangeError(`The "${name}" encoding is not supported`);
        }
        this.#isFatal = Boolean(options && options.fatal);
    }
    get encoding() { return 'utf-8'; }
    get fatal() { return this.#isFatal; }
    get ignoreBOM() { return false; }
    get [Symbol.toStringTag]() { return 'TextDecoder'; }
    decode(view) {
        const bytes = view === undefined ? new Uint8Array() : own.view(view);
        if (bytes === undefined) {
            throw new TypeError('The "input" argument must be an instance of TypedArray');
        }
        const text = native.decode(own.hex(bytes));
        if (this.#isFatal && native.encode(text).length !== bytes.length) {
            throw new TypeError('The encoded data was not valid');
        }
        return text;
    }
}

own.found.TextEncoder = TextEncoder;
own.found.TextDecoder = TextDecoder;
own.found.buffer = { Buffer };
