// crypto.subtle.

// The name of a digest below the language, its bytes, and its number in JWK.
const HASHES = { 'SHA-1': ['sha1', 20, '1'], 'SHA-256': ['sha256', 32, '256'],
    'SHA-384': ['sha384', 48, '384'], 'SHA-512': ['sha512', 64, '512'] };
const USAGES = ['decrypt', 'deriveBits', 'deriveKey', 'encrypt', 'sign', 'unwrapKey', 'verify',
    'wrapKey'];

// Of a kind of keys: its family, what a secret or a private key is for, and a public one, the forms
// in which it comes, and its name in JWK.
const KINDS = {};
function kind(names, family, [own, shown], formats, jwk) {
    names.forEach((name, index) => {
        KINDS[name.toUpperCase()] = { name, family, own, shown, formats, jwk: jwk && jwk[index] };
    });
}
const CIPHERS = ['encrypt', 'decrypt', 'wrapKey', 'unwrapKey'];
const DERIVES = ['deriveKey', 'deriveBits'];
const ALL_FORMATS = ['pkcs8', 'spki', 'raw', 'jwk'];
kind(['RSASSA-PKCS1-v1_5', 'RSA-PSS'], 'RSA', [['sign'], ['verify']], ['pkcs8', 'spki', 'jwk'],
    ['RS', 'PS']);
kind(['RSA-OAEP'], 'RSA', [['decrypt', 'unwrapKey'], ['encrypt', 'wrapKey']],
    ['pkcs8', 'spki', 'jwk'], ['RSA-OAEP']);
kind(['ECDSA'], 'EC', [['sign'], ['verify']], ALL_FORMATS);
kind(['ECDH'], 'EC', [DERIVES, DERIVES], ALL_FORMATS);
kind(['Ed25519'], 'OKP', [['sign'], ['verify']], ALL_FORMATS);
kind(['X25519'], 'OKP', [DERIVES, DERIVES], ALL_FORMATS);
kind(['HMAC'], 'oct', [['sign', 'verify'], []], ['raw', 'jwk']);
kind(['AES-GCM', 'AES-CTR', 'AES-CBC'], 'oct', [CIPHERS, []], ['raw', 'jwk'],
    ['GCM', 'CTR', 'CBC']);
kind(['AES-KW'], 'oct', [['wrapKey', 'unwrapKey'], []], ['raw', 'jwk'], ['KW']);
kind(['PBKDF2', 'HKDF'], 'secret', [DERIVES, []], ['raw']);

let insideOf;
class CryptoKey {
    // kind, type, isExtractable, usages, raw (its bytes on their way out of the script); hash of
    // those that have one; curve, bits and exponent of pairs.
    #inside;
    constructor(inside) { this.#inside = inside; }
    static {
        insideOf = (key, name) => {
            if (typeof key !== 'object' || key === null || !(#inside in key)) {
                throw new TypeError(`"${name}" is not a CryptoKey object`);
            }
            return key.#inside;
        };
    }
    get [Symbol.toStringTag]() { return 'CryptoKey'; }
    get type() { return this.#inside.type; }
    get extractable() { return this.#inside.isExtractable; }
    get usages() { return this.#inside.usages.slice(); }
    get algorithm() {
        const { kind: { name, family }, hash, curve, bits, exponent, raw } = this.#inside;
        switch (family) {
        case 'RSA':
            return { name, modulusLength: bits, publicExponent: exponent.slice(),
                hash: { name: hash } };
        case 'EC':
            return { name, namedCurve: curve };
        case 'oct':
            return name === 'HMAC' ? { name, hash } : { name, length: raw[0].length * 4 };
        default:
            return { name };
        }
    }
}

function kindOf(algorithm) {
    const name = typeof algorithm === 'object' && algorithm !== null ? algorithm.name : algorithm;
    const text = String(name);
    if (!Object.hasOwn(KINDS, text.toUpperCase())) {
        throw new TypeError(`unknown algorithm name: "${text}"`);
    }
    return KINDS[text.toUpperCase()];
}

function hashOf(given) {
    const name = typeof given === 'object' && given !== null ? given.name : given;
    const text = String(name);
    if (!Object.hasOwn(HASHES, text)) {
        throw new TypeError(`unknown hash name: "${text}"`);
    }
    return text;
}

function usagesOf(given) {
    if (!Array.isArray(given)) {
        throw new TypeError('"keyUsages" argument must be an Array');
    }
    const wrong = given.find((usage) => !USAGES.includes(usage));
    if (wrong !== undefined) {
        throw new TypeError(`unknown key usage: "${String(wrong)}"`);
    }
    return USAGES.filter((usage) => given.includes(usage));
}

// Bytes that a script gives, on their way out of it; njs takes those of strings, too.
function dataOf(value, name) {
    const view = own.view(value);
    if (view === undefined) {
        throw new TypeError(`"${name}" is not a Buffer-like object`);
    }
    return [own.hex(view)];
}

function required(algorithm, name, message) {
    if (algorithm === null || typeof algorithm !== 'object' || algorithm[name] === undefined) {
        throw new TypeError(message || `${algorithm.name} algorithm.${name} is not provided`);
    }
    return algorithm[name];
}

const NONE = [''];
const buffer = (bytes) => bytes.buffer;
const url = (bytes) => own.textOf(bytes, 'base64url');

function checkUsages(kindOfKey, usages) {
    if (usages.some((usage) => ![...kindOfKey.own, ...kindOfKey.shown].includes(usage))) {
        throw new TypeError(`unsupported key usage for "${kindOfKey.name}" key`);
    }
}

// A key of a pair, from what is known of it: its kind, bits, exponent and bytes.
function pairKey(found, [bits, exponent, der], [type, isExtractable, usages], algorithm) {
    const allowed = type === 'private' ? found.own : found.shown;
    if (usages.some((usage) => !allowed.includes(usage))) {
        throw new TypeError(`key usage mismatch for "${found.name}" key`);
    }
    const inside = { kind: found, type, isExtractable, usages, raw: [own.hex(der)] };
    if (found.family === 'RSA') {
        Object.assign(inside, { hash: hashOf(algorithm.hash), bits, exponent });
    } else {
        inside.curve = algorithm.namedCurve;
    }
    return new CryptoKey(inside);
}

function curveOf(found, algorithm) {
    if (found.family === 'RSA') {
        return 'RSA';
    }
    if (found.family === 'OKP') {
        return found.name;
    }
    const curve = String(algorithm.namedCurve);
    if (!['P-256', 'P-384', 'P-521'].includes(curve)) {
        throw new TypeError(`unknown namedCurve: "${curve}"`);
    }
    return curve;
}

// What a JWK says of its use.
function checkJwk(jwk, isExtractable, usages) {
    if (jwk.key_ops !== undefined) {
        const allowed = usagesOf(jwk.key_ops);
        if (usages.some((usage) => !allowed.includes(usage))) {
            throw new TypeError('Key operations and usage mismatch');
        }
    }
    if (isExtractable && jwk.ext !== undefined && !jwk.ext) {
        throw new TypeError(`JWK ${jwk.kty} is not extractable`);
    }
}

function importJwk(found, jwk, curve) {
    if (typeof jwk !== 'object' || jwk === null) {
        throw new TypeError('invalid JWK key data: object value expected');
    }
    if (!['RSA', 'EC', 'oct', 'OKP'].includes(jwk.kty)) {
        throw new TypeError(`invalid JWK key type: "${String(jwk.kty)}"`);
    }
    if (jwk.kty !== found.family) {
        throw new TypeError(`JWK kty "${jwk.kty}" doesn't match algorithm "${found.name}"`);
    }
    if (found.family !== 'RSA' && jwk.crv !== curve) {
        throw new TypeError(`JWK ${found.family} curve mismatch`);
    }
    const names = { RSA: ['n', 'e', 'd', 'p', 'q', 'dp', 'dq', 'qi'], EC: ['x', 'y', 'd'],
        OKP: ['x', 'd'] }[found.family];
    const pairs = [];
    for (const name of names) {
        if (jwk[name] !== undefined) {
            if (typeof jwk[name] !== 'string') {
                throw new TypeError(`Invalid JWK ${found.family} key`);
            }
            pairs.push([name, [own.hex(own.bytesOf(jwk[name], 'base64url'))]]);
        }
    }
    return native.keyOfNumbers(curve, pairs);
}

function importPair(format, data, found, algorithm, [isExtractable, usages]) {
    const curve = curveOf(found, algorithm);
    let known;
    let type = 'public';
    switch (format) {
    case 'jwk':
        known = importJwk(found, data, curve);
        type = data.d === undefined ? 'public' : 'private';
        checkJwk(data, isExtractable, usages);
        if (found.family === 'RSA' && data.alg !== undefined
            && data.alg !== rsaName(found, hashOf(algorithm.hash))) {
            throw new TypeError('RSA JWK hash mismatch');
        }
        break;
    case 'raw':
        known = native.keyOfPoint(curve, dataOf(data, 'keyData'));
        break;
    default:
        type = format === 'pkcs8' ? 'private' : 'public';
        known = native.keyRead(type, dataOf(data, 'keyData'));
    }
    if (known[0] !== curve) {
        const wrong = found.family === 'EC' && known[0].startsWith('P-');
        throw wrong ? new Error('name curve mismatch')
            : new TypeError(`${found.family === 'OKP' ? curve : found.family} key is not found`);
    }
    return pairKey(found, known.slice(1), [type, isExtractable, usages], algorithm);
}

const rsaName = (found, hash) => (found.name === 'RSA-OAEP'
    ? (hash === 'SHA-1' ? 'RSA-OAEP' : `RSA-OAEP-${HASHES[hash][2]}`)
    : `${found.jwk}${HASHES[hash][2]}`);

function importSecret(format, data, found, algorithm, [isExtractable, usages]) {
    let raw;
    let hash = found.name === 'HMAC' ? hashOf(algorithm.hash) : undefined;
    if (format === 'raw') {
        raw = dataOf(data, 'keyData');
    } else {
        if (typeof data !== 'object' || data === null) {
            throw new TypeError('invalid JWK key data: object value expected');
        }
        if (data.kty !== 'oct') {
            throw new TypeError(`JWK kty "${String(data.kty)}" doesn't match algorithm `
                + `"${found.name}"`);
        }
        if (typeof data.k !== 'string') {
            throw new TypeError('Invalid JWK oct key');
        }
        raw = [own.hex(own.bytesOf(data.k, 'base64url'))];
        if (typeof data.alg !== 'string') {
            throw new TypeError('Invalid JWK oct alg');
        }
        checkAlg(found, data.alg, raw, hash);
        checkJwk(data, isExtractable, usages);
    }
    if (found.name.startsWith('AES') && ![32, 48, 64].includes(raw[0].length)) {
        throw new TypeError('AES Invalid key length');
    }
    return new CryptoKey({ kind: found, type: 'secret', isExtractable, usages, raw, hash });
}

function checkAlg(found, alg, raw, hash) {
    if (found.name === 'HMAC') {
        if (!['HS1', 'HS256', 'HS384', 'HS512'].includes(alg)) {
            throw new TypeError(`unexpected "alg" value "${alg}" for JWK key`);
        }
        if (alg !== `HS${HASHES[hash][2]}`) {
            throw new TypeError('HMAC JWK hash mismatch');
        }
        return;
    }
    const match = /^A(128|192|256)([A-Z]+)$/.exec(alg);
    if (match === null || match[2] !== found.jwk) {
        throw new TypeError(`unexpected "alg" value "${alg}" for JWK key`);
    }
    if (raw[0].length * 4 !== Number(match[1])) {
        throw new TypeError(`key size and "alg" value "${alg}" mismatch`);
    }
}

function importKey(format, data, algorithm, isExtractable, usages) {
    if (!ALL_FORMATS.includes(format)) {
        throw new TypeError(`unknown key format: "${String(format)}"`);
    }
    const found = kindOf(algorithm);
    const wanted = usagesOf(usages);
    checkUsages(found, wanted);
    if (!found.formats.includes(format)) {
        throw new TypeError(`unsupported key fmt "${format}" for "${found.name}" key`);
    }
    const rest = [Boolean(isExtractable), wanted];
    return found.family === 'oct' || found.family === 'secret'
        ? importSecret(format, data, found, algorithm, rest)
        : importPair(format, data, found, algorithm, rest);
}

function exportJwk(inside) {
    const { kind: found, type, hash, curve, raw, usages, isExtractable } = inside;
    const jwk = { kty: found.family };
    if (found.family === 'oct') {
        jwk.k = url(own.unhex(raw[0]));
        jwk.alg = found.name === 'HMAC' ? `HS${HASHES[hash][2]}`
            : `A${raw[0].length * 4}${found.jwk}`;
    } else {
        for (const [name, number] of native.keyNumbers(type, raw)) {
            jwk[name] = url(number);
        }
        if (found.family === 'RSA') {
            jwk.alg = rsaName(found, hash);
        } else {
            jwk.crv = found.family === 'EC' ? curve : found.name;
        }
    }
    return Object.assign(jwk, { key_ops: usages.slice(), ext: isExtractable });
}

function exportKey(format, key) {
    if (!ALL_FORMATS.includes(format)) {
        throw new TypeError(`unknown key format: "${String(format)}"`);
    }
    const inside = insideOf(key, 'key');
    const { kind: found, type, raw } = inside;
    if (!found.formats.includes(format)) {
        throw new TypeError(`unsupported key fmt "${format}" for "${found.name}" key`);
    }
    if (!inside.isExtractable) {
        throw new TypeError('provided key cannot be extracted');
    }
    switch (format) {
    case 'jwk':
        if (found.family === 'secret') {
            throw new TypeError('provided key cannot be exported as JWK');
        }
        return exportJwk(inside);
    case 'pkcs8':
        if (type !== 'private') {
            throw new TypeError(`public key of "${found.name}" cannot be exported as PKCS8`);
        }
        return buffer(own.unhex(raw[0]));
    case 'spki':
        if (type !== 'public') {
            throw new TypeError(`private key of "${found.name}" cannot be exported as SPKI`);
        }
        return buffer(own.unhex(raw[0]));
    default:
        if (type === 'private') {
            throw new TypeError(`private key of "${found.name}" cannot be exported `
                + 'in "raw" format');
        }
        return buffer(type === 'secret' ? own.unhex(raw[0]) : native.keyPoint(raw));
    }
}

// Encrypts or decrypts, whatever for.
function run(way, algorithm, inside, data) {
    const found = kindOf(algorithm);
    const { kind: { name }, raw, type, hash } = inside;
    if (name !== found.name) {
        throw new TypeError(`cannot ${way} using "${name}" with `
            + `"${found.name}" key`);
    }
    switch (name) {
    case 'AES-CBC':
        return native.aes(name, way, [data, raw, dataOf(required(algorithm, 'iv'), 'iv'), NONE],
            0);
    case 'AES-CTR': {
        const counter = dataOf(required(algorithm, 'counter'), 'counter');
        const bits = Number(required(algorithm, 'length'));
        if (!(bits >= 1 && bits <= 128)) {
            throw new TypeError('AES-CTR algorithm.length must be between 1 and 128');
        }
        return native.aes(name, way, [data, raw, counter, NONE], Math.trunc(bits));
    }
    case 'AES-GCM': {
        const iv = dataOf(required(algorithm, 'iv'), 'iv');
        const bits = algorithm.tagLength === undefined ? 128 : Number(algorithm.tagLength);
        if (![32, 64, 96, 104, 112, 120, 128].includes(bits)) {
            throw new TypeError('AES-GCM invalid tagLength');
        }
        const aad = algorithm.additionalData === undefined ? NONE
            : dataOf(algorithm.additionalData, 'additionalData');
        return native.aes(name, way, [data, raw, iv, aad], bits / 8);
    }
    case 'AES-KW':
        return native.aes(name, way, [data, raw, NONE, NONE], 0);
    case 'RSA-OAEP': {
        if (type !== (way === 'encrypt' ? 'public' : 'private')) {
            throw new TypeError(`RSA-OAEP does not ${way} with a ${type} key`);
        }
        const label = algorithm.label === undefined ? NONE : dataOf(algorithm.label, 'label');
        return native.oaep(way, [data, raw, label], HASHES[hash][0]);
    }
    default:
        throw new TypeError(`cannot ${way} using "${name}"`);
    }
}

function allowed(key, usage, name) {
    const inside = insideOf(key, name);
    if (!inside.usages.includes(usage)) {
        throw new TypeError(`key does not support ${usage} operation`);
    }
    return inside;
}

// The digest and the salt of a signature, and its scheme.
function scheme(algorithm, inside) {
    const found = kindOf(algorithm);
    if (inside.kind.name !== found.name) {
        throw new TypeError(`cannot sign using "${inside.kind.name}" with "${found.name}" key`);
    }
    const hash = found.name === 'ECDSA' ? hashOf(algorithm.hash) : inside.hash;
    let salt = 0;
    if (found.name === 'RSA-PSS') {
        salt = Number(required(algorithm, 'saltLength'));
        if (!Number.isInteger(salt) || salt < 0 || salt > 512) {
            throw new TypeError('RSA-PSS algorithm.saltLength is not valid');
        }
    }
    return [found.name, hash === undefined ? '' : HASHES[hash][0], salt];
}

function isSame(one, other) {
    let difference = one.length ^ other.length;
    for (let at = 0; at < Math.min(one.length, other.length); at++) {
        difference |= one[at] ^ other[at];
    }
    return difference === 0;
}

function bitsOf(algorithm, key, [usage, length]) {
    const inside = allowed(key, usage, 'baseKey');
    const found = kindOf(algorithm);
    if (inside.kind.name !== found.name) {
        throw new TypeError(`cannot derive ${usage === 'deriveKey' ? 'key' : 'bits'} using `
            + `"${inside.kind.name}" with "${found.name}" key`);
    }
    if (found.name === 'ECDH' || found.name === 'X25519') {
        if (inside.type !== 'private') {
            throw new TypeError('baseKey must be a private key for ECDH');
        }
        const other = insideOf(required(algorithm, 'public',
            `${found.name} algorithm.public is not provided`), 'algorithm.public');
        if (other.type !== 'public') {
            throw new TypeError('algorithm.public must be a public key');
        }
        if (other.kind.name !== found.name) {
            throw new TypeError('algorithm.public key type mismatch');
        }
        const bits = native.agree(inside.raw, other.raw);
        if (length === null || length === undefined) {
            return bits;
        }
        const wanted = Math.ceil(length / 8);
        if (wanted > bits.length) {
            throw new TypeError('derived bit length is too small');
        }
        const made = bits.slice(0, wanted);
        if (length % 8) {
            made[wanted - 1] &= 0xff << (8 - (length % 8));
        }
        return made;
    }
    if (typeof length !== 'number' || !(length >= 0)) {
        throw new TypeError('length is not a number');
    }
    const digest = HASHES[hashOf(algorithm.hash)][0];
    const salt = dataOf(required(algorithm, 'salt'), 'salt');
    const size = Math.min(Math.floor(length / 8), 0x7fffffff);
    if (found.name === 'HKDF') {
        const info = dataOf(required(algorithm, 'info'), 'info');
        return native.hkdf(digest, [inside.raw, salt, info], size);
    }
    if (salt[0].length < 32) {
        throw new TypeError('PBKDF2 algorithm.salt must be at least 16 bytes long');
    }
    const rounds = Number(required(algorithm, 'iterations'));
    if (!(rounds >= 1 && rounds <= 0xffffffff)) {
        throw new TypeError('PBKDF2 algorithm.iterations must be greater than 0');
    }
    return native.pbkdf2(digest, [inside.raw, salt], Math.trunc(rounds), size);
}

function derivedLength(algorithm, isOpen) {
    const found = kindOf(algorithm);
    if (found.family !== 'oct') {
        throw new TypeError(`not implemented deriveKey: "${found.name}"`);
    }
    if (algorithm.length === undefined) {
        if (found.name === 'HMAC' && isOpen) {
            return HASHES[hashOf(algorithm.hash)][1] * 8;
        }
        throw new TypeError('derivedKeyAlgorithm.length is not provided');
    }
    const length = Number(algorithm.length);
    if (found.name !== 'HMAC' && ![128, 192, 256].includes(length)) {
        throw new TypeError(`deriveKey "${found.name}" length must be 128, 192, or 256`);
    }
    return length;
}

const subtle = {
    get [Symbol.toStringTag]() { return 'SubtleCrypto'; },
    async digest(algorithm, data) {
        const hash = hashOf(algorithm);
        return buffer(native.digest(HASHES[hash][0], dataOf(data, 'data')[0]));
    },
    async importKey(format, data, algorithm, extractable, usages) {
        return importKey(format, data, algorithm, extractable, usages);
    },
    async exportKey(format, key) { return exportKey(format, key); },
    async generateKey(algorithm, extractable, usages) {
        const found = kindOf(algorithm);
        const wanted = usagesOf(usages);
        checkUsages(found, wanted);
        const isExtractable = Boolean(extractable);
        if (found.family === 'oct') {
            const hash = found.name === 'HMAC' ? hashOf(algorithm.hash) : undefined;
            const length = algorithm.length;
            if (hash === undefined && typeof length !== 'number') {
                throw new TypeError('length is not a number');
            }
            if (hash === undefined && ![128, 192, 256].includes(length)) {
                throw new TypeError(`length for "${found.name}" key should be one of 128, 192, `
                    + '256');
            }
            const raw = [own.hex(native.random(hash === undefined
                ? length / 8 : HASHES[hash][1]))];
            return new CryptoKey({ kind: found, type: 'secret', isExtractable, usages: wanted,
                raw, hash });
        }
        if (found.family === 'secret') {
            throw new TypeError(`not implemented generateKey algorithm: "${found.name}"`);
        }
        let exponent = NONE;
        if (found.family === 'RSA') {
            hashOf(algorithm.hash);
            if (typeof algorithm.modulusLength !== 'number') {
                throw new TypeError('"modulusLength" is not a number');
            }
            exponent = algorithm.publicExponent === undefined ? ['010001']
                : dataOf(algorithm.publicExponent, 'publicExponent');
        }
        const bits = found.family === 'RSA' ? Math.trunc(algorithm.modulusLength) >>> 0 : 0;
        const [secret, shown] = native.keyMade(curveOf(found, algorithm), bits, exponent);
        const of = (list) => wanted.filter((usage) => list.includes(usage));
        const isAgreed = found.own === DERIVES;
        return {
            privateKey: pairKey(found, secret.slice(1), ['private', isExtractable, of(found.own)],
                algorithm),
            publicKey: pairKey(found, shown.slice(1),
                ['public', true, isAgreed ? [] : of(found.shown)], algorithm),
        };
    },
    async encrypt(algorithm, key, data) {
        const inside = allowed(key, 'encrypt', 'key');
        return buffer(run('encrypt', algorithm, inside, dataOf(data, 'data')));
    },
    async decrypt(algorithm, key, data) {
        const inside = allowed(key, 'decrypt', 'key');
        return buffer(run('decrypt', algorithm, inside, dataOf(data, 'data')));
    },
    async sign(algorithm, key, data) {
        const inside = allowed(key, 'sign', 'key');
        const [name, digest, salt] = scheme(algorithm, inside);
        const raw = dataOf(data, 'data');
        return buffer(name === 'HMAC' ? native.keyed(digest, inside.raw[0], raw[0])
            : native.sign(name, inside.raw, digest, salt, raw));
    },
    async verify(algorithm, key, signature, data) {
        const inside = allowed(key, 'verify', 'key');
        const [name, digest, salt] = scheme(algorithm, inside);
        const raw = [dataOf(data, 'data'), dataOf(signature, 'signature')];
        if (name === 'HMAC') {
            return isSame(native.keyed(digest, inside.raw[0], raw[0][0]), own.unhex(raw[1][0]));
        }
        return native.verify(name, inside.raw, digest, salt, raw);
    },
    async deriveBits(algorithm, key, length) {
        return buffer(bitsOf(algorithm, key, ['deriveBits', length]));
    },
    async deriveKey(algorithm, key, derived, extractable, usages) {
        const found = kindOf(derived);
        const wanted = usagesOf(usages);
        checkUsages(found, wanted);
        const isOpen = ['ECDH', 'X25519'].includes(kindOf(algorithm).name);
        const bits = bitsOf(algorithm, key, ['deriveKey', derivedLength(derived, isOpen)]);
        return importSecret('raw', bits, found, derived, [Boolean(extractable), wanted]);
    },
    async wrapKey(format, key, wrapping, algorithm) {
        const inside = allowed(wrapping, 'wrapKey', 'wrappingKey');
        const made = exportKey(format, key);
        const data = format === 'jwk' ? own.bytesOf(JSON.stringify(made)) : made;
        return buffer(run('encrypt', algorithm, inside, dataOf(data, 'key')));
    },
    async unwrapKey(format, wrapped, unwrapping, algorithm, keyAlgorithm, extractable, usages) {
        const inside = allowed(unwrapping, 'unwrapKey', 'unwrappingKey');
        const bytes = run('decrypt', algorithm, inside, dataOf(wrapped, 'wrappedKey'));
        let data = bytes;
        if (format === 'jwk') {
            try {
                data = JSON.parse(own.textOf(bytes, 'utf8'));
            } catch (_) {
                throw new TypeError('wrapped key is not valid JWK JSON');
            }
        }
        return importKey(format, data, keyAlgorithm, extractable, usages);
    },
};
own.found.subtle = subtle;
