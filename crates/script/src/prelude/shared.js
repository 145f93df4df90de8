// ngx.shared: dictionaries that all workers share.

class SharedMemoryError extends Error {
    get name() { return 'SharedMemoryError'; }
}
own.found.SharedMemoryError = SharedMemoryError;

class SharedDict {
    #name;
    #isOfNumbers;
    #hasTimeout;
    constructor([name, capacity, isOfNumbers, hasTimeout]) {
        this.#name = name;
        this.#isOfNumbers = isOfNumbers;
        this.#hasTimeout = hasTimeout;
        own.define(this, 'capacity', capacity);
    }
    get [Symbol.toStringTag]() { return 'SharedDict'; }
    get name() { return this.#name; }
    get type() { return this.#isOfNumbers ? 'number' : 'string'; }

    #ask(what, key, value, time, first) {
        const told = native.dict(this.#name, what, key, value, time, first);
        if (told === null) {
            throw new SharedMemoryError('shared memory is full');
        }
        return told;
    }
    #key(key) { return String(key).toWellFormed(); }
    #value(value) {
        if (this.#isOfNumbers) {
            if (typeof value !== 'number') {
                throw new TypeError('number value is expected');
            }
            return value;
        }
        const view = typeof value === 'string' ? value : own.view(value);
        if (view === undefined) {
            throw new TypeError('string value is expected');
        }
        return typeof view === 'string' ? view.toWellFormed() : own.textOf(view, 'utf8');
    }
    #time(time) {
        if (time === undefined) {
            return -1;
        }
        if (!this.#hasTimeout) {
            throw new TypeError('shared dict must be declared with timeout');
        }
        if (!(Number(time) >= 1)) {
            throw new TypeError('timeout is invalid');
        }
        return Number(time);
    }
    #most(max) { return max === undefined ? 1024 : Math.max(0, Number(max) || 0); }

    add(key, value, time) {
        return this.#ask('add', this.#key(key), this.#value(value), this.#time(time)) === true;
    }
    set(key, value, time) {
        this.#ask('set', this.#key(key), this.#value(value), this.#time(time));
        return this;
    }
    replace(key, value) {
        return this.#ask('replace', this.#key(key), this.#value(value), -1) === true;
    }
    get(key) { return this.#ask('get', this.#key(key)); }
    has(key) { return this.get(key) !== undefined; }
    pop(key) { return this.#ask('take', this.#key(key)); }
    delete(key) { return this.pop(key) !== undefined; }
    ttl(key) {
        if (!this.#hasTimeout) {
            throw new TypeError('shared dict must be declared with timeout');
        }
        return this.#ask('left', this.#key(key));
    }
    incr(key, delta, init, time) {
        if (!this.#isOfNumbers) {
            throw new TypeError('shared dict is not a number dict');
        }
        return this.#ask('incr', this.#key(key), this.#value(delta), this.#time(time),
            init === undefined ? 0 : this.#value(init));
    }
    items(max) { return this.#ask('items', '', this.#most(max)); }
    keys(max) { return this.items(max).map(([key]) => key); }
    clear() { this.#ask('clear', ''); }
    size() { return this.#ask('count', ''); }
    freeSpace() { return this.#ask('free', ''); }
}

own.found.shared = {};
native.dicts().forEach((it) => { own.found.shared[it[0]] = new SharedDict(it); });
