// console.

const { INFO, WARN, ERR } = own.levels;
const log = own.log;

// Bounded, so that a script that starts clocks and never stops them keeps no memory.
const MOST_CLOCKS = 64;

class Console {
    #clocks = new Map();
    get [Symbol.toStringTag]() { return 'Console'; }
    dump(value) { log(INFO, own.dump(value, 1)); }
    log(...values) { values.forEach((value) => log(INFO, value)); }
    info(...values) { values.forEach((value) => log(INFO, value)); }
    warn(...values) { values.forEach((value) => log(WARN, value)); }
    error(...values) { values.forEach((value) => log(ERR, value)); }
    time(label) {
        const name = label === undefined ? 'default' : String(label);
        if (this.#clocks.has(name)) {
            log(INFO, `Timer "${name}" already exists.`);
        } else if (this.#clocks.size < MOST_CLOCKS) {
            this.#clocks.set(name, native.now());
        }
    }
    timeEnd(label) {
        const name = label === undefined ? 'default' : String(label);
        const start = this.#clocks.get(name);
        if (start === undefined) {
            log(INFO, `Timer "${name}" doesn't exist.`);
            return;
        }
        this.#clocks.delete(name);
        log(INFO, `${name}: ${(native.now() - start).toFixed(6)}ms`);
    }
}

own.found.console = new Console();
