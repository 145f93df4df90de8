// The module `zlib`.

function numberIn(value, otherwise, [least, most], message) {
    if (value === undefined) {
        return otherwise;
    }
    const number = Math.trunc(Number(value)) || 0;
    if (number < least || number > most) {
        throw new RangeError(message);
    }
    return number;
}

function packed(call, isRaw, data, options) {
    const given = typeof options === 'object' && options !== null ? options : {};
    const least = call === native.unpack ? 8 : 9;
    numberIn(given.chunkSize, 1024, [64, Infinity], 'chunkSize must be >= 64');
    const level = numberIn(given.level, -1, [-1, 9], 'level must be in the range -1..9');
    const bits = isRaw
        ? -numberIn(given.windowBits, -15, [-15, -least],
            `windowBits must be in the range -15..-${least}`)
        : numberIn(given.windowBits, 15, [least, 15],
            `windowBits must be in the range ${least}..15`);
    numberIn(given.memLevel, 8, [1, 9], 'memLevel must be in the range 1..9');
    numberIn(given.strategy, 0, [0, 4], `unknown strategy: ${String(given.strategy)}`);
    const known = given.dictionary === undefined ? undefined : bytesFor(given.dictionary);
    return own.buffer(call(bytesFor(data), isRaw ? 'raw' : 'zlib', bits, [level < 0 ? 6 : level, known]));
}

function bytesFor(value) {
    const view = own.view(value);
    if (view === undefined) {
        throw new TypeError('data is not a string or Buffer-like object');
    }
    return own.raw(view);
}

own.found.zlib = {
    deflateRawSync(data, options) { return packed(native.pack, true, data, options); },
    deflateSync(data, options) { return packed(native.pack, false, data, options); },
    inflateRawSync(data, options) { return packed(native.unpack, true, data, options); },
    inflateSync(data, options) { return packed(native.unpack, false, data, options); },
    constants: { Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9, Z_FILTERED: 1,
        Z_HUFFMAN_ONLY: 2, Z_RLE: 3, Z_FIXED: 4, Z_DEFAULT_STRATEGY: 0 },
};
