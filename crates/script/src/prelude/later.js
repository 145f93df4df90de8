// require, and the parts that are read in a context when a script first asks for one: each puts what it
// makes into `own.found`.

own.found = {};
own.part = function (part, name) {
    if (own.found[name] === undefined) {
        native.part(native, part)(native, own);
    }
    return own.found[name];
};

const later = (object, name, part, found = name) => Object.defineProperty(object, name, {
    get: () => own.part(part, found), enumerable: true, configurable: true,
});
later(own.modules, 'buffer', 'buffer');
later(own.modules, 'crypto', 'crypto', 'module');
later(own.modules, 'fs', 'files');
later(own.modules, 'querystring', 'querystring');
later(own.modules, 'xml', 'xml');
later(own.modules, 'zlib', 'zlib');
own.form = (...args) => own.part('form', 'form')(...args);
own.session = (id) => own.part('session', 'session')(id);
own.cache = (id) => own.part('cache', 'cache')(id);

// A property that is made when it is first read, and may be written at any time.
function settled(object, name, part, enumerable) {
    const settle = (value) => Object.defineProperty(object, name, {
        value, writable: true, configurable: true, enumerable,
    });
    Object.defineProperty(object, name, {
        get() {
            const value = own.part(part, name);
            settle(value);
            return value;
        },
        set: settle,
        configurable: true,
        enumerable,
    });
}
for (const [part, names] of [
    ['buffer', ['Buffer', 'TextEncoder', 'TextDecoder']], ['console', ['console']],
    ['crypto', ['crypto']], ['fetch', ['Headers', 'Request', 'Response']],
    ['process', ['process']], ['shared', ['SharedMemoryError']],
]) {
    names.forEach((name) => settled(globalThis, name, part, false));
}
settled(ngx, 'fetch', 'fetch', true);
Object.defineProperty(ngx, 'shared', { enumerable: true, get: () => own.part('shared', 'shared') });

own.define(globalThis, 'require', function require(name) {
    const found = Object.hasOwn(own.modules, name) ? own.modules[name] : undefined;
    if (found === undefined) {
        throw new Error(`Cannot find module "${String(name)}"`);
    }
    return found;
});
