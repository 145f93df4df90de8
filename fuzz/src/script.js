// Bytes of the request's body are calls: an object, one of its names, what it is called with, and
// how. What comes out may be called next.

import { Buffer as B } from 'buffer';
import hashes from 'crypto';
import query from 'querystring';
import xml from 'xml';
import zlib from 'zlib';

// These reach out of the script, or end what the calls stand on.
const LEFT = ['constructor', 'kill', 'eval', 'exit'];
const MOST_CALLS = 64, MOST_KEPT = 64;

function names(object) {
    const all = new Set();
    for (let at = object; at && at !== Object.prototype && at !== Function.prototype;
        at = Object.getPrototypeOf(at)) {
        Reflect.ownKeys(at).forEach((name) => all.add(name));
    }
    return [...all].filter((name) => !LEFT.includes(name)).slice(0, 256);
}

async function calls(r) {
    const bytes = r.requestBuffer;
    const kept = [r, r.variables, r.rawVariables, r.headersIn, r.headersOut, r.cache, ngx,
        ngx.shared.d, crypto, crypto.subtle, hashes, query, zlib, xml,
        xml.parse('<a xmlns="u" b="c">d<e/></a>'), B, B.from('a'), Headers, new Headers({ a: 'b' }),
        Request, Response, new Response('b'), new TextDecoder(), console, njs,
        { setTimeout, setImmediate, clearTimeout },
        await crypto.subtle.importKey('raw', B.alloc(16), { name: 'AES-GCM' }, true,
            ['encrypt', 'decrypt'])];
    const odd = [undefined, null, true, NaN, -1, 0, 7, 2 ** 31, 1e99, '', 'utf8', '\ud800\0',
        Symbol('x'), 7n, {}, [], [1, [2]], () => 1, () => { throw 1; }, new Date(NaN), /a/,
        new Proxy({}, { get() { throw new Error('trap'); } }), Object.create(null),
        { toString() { throw new Error('text'); } }, { valueOf: () => -1, length: 1e9 },
        { name: 'AES-GCM', iv: B.alloc(12), length: 128 }, { name: 'HMAC', hash: 'SHA-256' },
        { name: 'HKDF', hash: 'SHA-1', salt: '', info: '' }, { name: 'ECDSA', namedCurve: 'P-256' },
        'raw', 'jwk', 'hex', 'base64', ['sign', 'verify', 'encrypt'], 'sha256', 'exit'];
    let at = 0;
    const next = () => (at < bytes.length ? bytes[at++] : 0);
    const piece = () => bytes.subarray(at, at += next() & 31);
    function value() {
        const kind = next();
        switch (kind & 7) {
        case 0: return kept[next() % kept.length];
        case 1: return piece().toString();
        case 2: return piece();
        case 3: return next() * 256 + next();
        case 4: return piece().toString('base64');
        default: return odd[next() % odd.length];
        }
    }
    for (let call = 0; call < MOST_CALLS && at < bytes.length; call++) {
        const target = kept[next() % kept.length];
        const how = next();
        try {
            const known = names(Object(target));
            const name = known[next() % known.length];
            const args = Array.from({ length: how & 3 }, value);
            const found = target[name];
            let made = found;
            if (how & 4) {
                target[name] = args[0];
            } else if (how & 8) {
                delete target[name];
            } else if (typeof found === 'function') {
                made = how & 16 ? Reflect.construct(found, args) : found.apply(target, args);
            }
            if (made instanceof Promise) {
                made.then((it) => kept.push(it), () => {});
                made = how & 32 ? await made : undefined;
            }
            if (Object(made) === made && kept.length < MOST_KEPT) {
                kept.push(made);
            }
        } catch (error) {
            String(error && error.message);
        }
    }
}

const alive = () => 'alive';

export default { calls, alive };
