// r.subrequest().

const { fields, SINGLE_OUT } = own.shared;

own.found.subrequest = function (request, id, args) {
    const [uri, options, callback] = args;
    if (args.length === 0 || uri === undefined || uri === '') {
        throw new TypeError('uri is required');
    }
    const target = textual(uri, 'uri arg');
    let given = options;
    let done = callback;
    if (typeof options === 'function') {
        [given, done] = [undefined, options];
    }
    const order = orderOf(given);
    if (done !== undefined && typeof done !== 'function') {
        throw new TypeError('callback is not a function');
    }
    if (order.detached) {
        if (done !== undefined) {
            throw new TypeError('detached flag and callback are mutually exclusive');
        }
        native.subrequest(id, 0, target, order.args, order.method, order.body);
        return undefined;
    }
    const start = (number) => native.subrequest(id, number, target, order.args,
        order.method, order.body);
    const reply = (answer) => new Reply(request, answer);
    if (done !== undefined) {
        own.begin(start, (answer) => {
            if (answer.error !== undefined) {
                throw new Error(answer.error);
            }
            done(reply(answer));
        });
        return undefined;
    }
    let settle;
    const promise = new Promise((resolve, reject) => { settle = { resolve, reject }; });
    own.begin(start, (answer) => {
        if (answer.error !== undefined) {
            settle.reject(new Error(answer.error));
        } else {
            settle.resolve(reply(answer));
        }
    });
    return promise;
};

// The text of an argument of `subrequest`.
function textual(value, name) {
    try {
        return String(value).toWellFormed();
    } catch (_) {
        throw new TypeError(`failed to convert ${name}`);
    }
}

function orderOf(given) {
    const order = { args: '', method: 'GET', body: undefined, detached: false };
    if (given === undefined || given === null) {
        return order;
    }
    if (typeof given === 'string') {
        order.args = given.toWellFormed();
        return order;
    }
    if (typeof given !== 'object') {
        throw new TypeError('failed to convert options');
    }
    if (given.args !== undefined) {
        order.args = textual(given.args, 'options.args');
    }
    if (given.method !== undefined) {
        order.method = textual(given.method, 'options.method').toUpperCase();
    }
    if (given.body !== undefined) {
        order.body = own.raw(given.body);
    }
    order.detached = Boolean(given.detached);
    return order;
}

// The answer of a subrequest.
class Reply {
    #answer;
    #parent;
    #out;
    constructor(parent, answer) {
        this.#parent = parent;
        this.#answer = answer;
    }
    get [Symbol.toStringTag]() { return 'Request'; }
    get status() { return this.#answer.status; }
    get headersOut() {
        if (this.#out === undefined) {
            this.#out = fields(() => this.#answer.headers, SINGLE_OUT);
        }
        return this.#out;
    }
    get rawHeadersOut() { return this.#answer.headers; }
    get responseBuffer() { return own.buffer(this.#answer.body); }
    get responseText() { return own.textOf(this.#answer.body, 'utf8'); }
    get responseBody() { return this.responseText; }
    get method() { return this.#answer.method; }
    get uri() { return this.#answer.uri; }
    get args() { return own.modules.querystring.parse(this.#answer.args); }
    get headersIn() { return this.#parent.headersIn; }
    get rawHeadersIn() { return this.#parent.rawHeadersIn; }
    get remoteAddress() { return this.#parent.remoteAddress; }
    get httpVersion() { return this.#parent.httpVersion; }
    get internal() { return true; }
    get parent() { return this.#parent; }
    subrequest() {
        throw new TypeError('subrequest can only be created for the primary request');
    }
    log(value) { this.#parent.log(value); }
    warn(value) { this.#parent.warn(value); }
    error(value) { this.#parent.error(value); }
}
