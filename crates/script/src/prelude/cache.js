// r.cache: the cache of a request's location.

const KINDS = ['key', 'prefix', 'wildcard', 'host', 'site', 'tag'];

class Cache {
    #id;
    constructor(id) { this.#id = id; }
    get [Symbol.toStringTag]() { return 'Cache'; }
    get key() { return native.cacheKey(this.#id); }
    get status() { return native.variable(this.#id, 'upstream_cache_status') || undefined; }
    get reason() { return native.variable(this.#id, 'cache_status_reason') || undefined; }
    get ttl() {
        const ttl = native.variable(this.#id, 'cache_ttl');
        return ttl ? Number(ttl) : undefined;
    }
    get tags() {
        const found = this.lookup();
        return found === null ? [] : found.tags;
    }
    lookup(key, zone) {
        if (zone === undefined && key === undefined && this.key === undefined) {
            return null;
        }
        const found = native.cached(this.#id, key === undefined ? undefined : own.raw(key),
            zone === undefined ? undefined : String(zone).toWellFormed());
        return found === undefined || found === null ? null : found;
    }
    purge(given) {
        const order = given === undefined ? {} : given;
        return new Promise((resolve, reject) => {
            if (typeof order !== 'object' || order === null) {
                throw new TypeError('what is to be purged is not an object');
            }
            const kinds = KINDS.filter((kind) => order[kind] !== undefined);
            if (order.all === true) {
                kinds.push('all');
            }
            if (kinds.length > 1) {
                throw new TypeError(`one thing to purge, and not ${kinds.join(' and ')}`);
            }
            const unknown = Object.keys(order).filter((name) => !KINDS.includes(name)
                && !['all', 'soft', 'zone'].includes(name));
            if (unknown.length) {
                throw new TypeError(`"${unknown[0]}" is no part of a purge`);
            }
            const [kind] = kinds;
            const list = (value) => (Array.isArray(value) ? value.join(' ') : value);
            const what = kind === undefined ? undefined
                : own.raw(kind === 'all' ? '*' : list(order[kind]));
            const zone = order.zone === undefined ? undefined : String(order.zone).toWellFormed();
            own.begin(
                (id) => native.purge(this.#id, id, kind === 'key' || kind === undefined
                    ? 'exact' : kind, what, zone, Boolean(order.soft)),
                (answer) => {
                    if (answer.error !== undefined) {
                        return reject(new Error(answer.error));
                    }
                    return resolve(answer.purged);
                },
            );
        });
    }
}
own.found.cache = (id) => new Cache(id);
