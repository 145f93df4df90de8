// process.

const SIGNALS = { HUP: 1, INT: 2, QUIT: 3, ILL: 4, TRAP: 5, ABRT: 6, BUS: 7, FPE: 8, KILL: 9,
    USR1: 10, SEGV: 11, USR2: 12, PIPE: 13, ALRM: 14, TERM: 15, CHLD: 17, CONT: 18, STOP: 19,
    TSTP: 20, TTIN: 21, TTOU: 22, URG: 23, XCPU: 24, XFSZ: 25, VTALRM: 26, PROF: 27, WINCH: 28,
    IO: 29, PWR: 30, SYS: 31 };

let environment;

const process = {
    get [Symbol.toStringTag]() { return 'process'; },
    get argv() { return native.arguments(); },
    get env() {
        if (environment === undefined) {
            environment = Object.fromEntries(native.environment());
        }
        return environment;
    },
    get pid() { return native.processId('own'); },
    get ppid() { return native.processId('parent'); },
    kill(pid, signal) {
        let number = SIGNALS.TERM;
        if (typeof signal === 'number') {
            number = signal;
        } else if (signal !== undefined) {
            const name = String(signal);
            number = name.startsWith('SIG') ? SIGNALS[name.slice(3)] : undefined;
        }
        if (!Number.isInteger(number) || number < 0 || number > 31) {
            throw new TypeError(`unknown signal: ${String(signal)}`);
        }
        native.kill(Number(pid) | 0, number);
        return true;
    },
};
own.found.process = process;
