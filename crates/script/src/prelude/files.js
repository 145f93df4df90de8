// The module `fs`.

const { isView, encodingOf } = own.shared;

const MOST_PATH = 4096;

// A path on its way out of a script.
function pathOf(value, name) {
    if (typeof value !== 'string' && !(isView(value) && !(value instanceof DataView))) {
        throw new TypeError(`"${name}" must be a string or Buffer`);
    }
    const view = own.view(value);
    if (view.length >= MOST_PATH) {
        throw new RangeError(`"${name}" is too long >= ${MOST_PATH}`);
    }
    if (view.includes(0)) {
        throw new TypeError(`"${name}" must be a Buffer without null bytes`);
    }
    return own.raw(typeof value === 'string' ? value : view);
}

// Options: an object, or the value of one of them.
function optionsOf(given, kind, name, what) {
    if (given === undefined || given === null) {
        return {};
    }
    if (typeof given === kind) {
        return { [name]: given };
    }
    if (typeof given !== 'object') {
        throw new TypeError(`Unknown options type (${what})`);
    }
    return given;
}

const textOptions = (given) => optionsOf(given, 'string', 'encoding',
    'a string or object required');

function modeOf(value, otherwise) {
    if (value === undefined) {
        return otherwise;
    }
    const mode = Number(value);
    return Number.isFinite(mode) ? mode & 0o7777 : 0;
}

const howOf = (options) => (options.recursive ? 'recursive' : '');

const flagOf = (options, otherwise) => (options.flag === undefined
    ? otherwise : String(options.flag).toWellFormed());

// Bytes in the encoding of the options; a Buffer without one.
function encoded(bytes, encoding) {
    return encoding === undefined || encoding === 'buffer'
        ? own.buffer(bytes) : own.textOf(bytes, encoding);
}

function checkEncoding(encoding) {
    if (encoding !== undefined && encoding !== 'buffer') {
        encodingOf(encoding);
    }
    return encoding;
}

// Data that is written.
function contentOf(value, encoding) {
    if (isView(value)) {
        return own.raw(value);
    }
    return own.raw(own.bytesOf(String(value), encoding === 'buffer' ? undefined : encoding));
}

const FILE_TYPES = {
    isBlockDevice: [0o060000, 6], isCharacterDevice: [0o020000, 2], isDirectory: [0o040000, 4],
    isFIFO: [0o010000, 1], isFile: [0o100000, 8], isSocket: [0o140000, 12],
    isSymbolicLink: [0o120000, 10],
};

class Stats {
    constructor(facts) {
        ['dev', 'mode', 'nlink', 'uid', 'gid', 'rdev', 'blksize', 'ino', 'size', 'blocks']
            .forEach((name, index) => { this[name] = facts[index]; });
        ['atime', 'mtime', 'ctime', 'birthtime'].forEach((name, index) => {
            const time = facts[10 + index];
            this[`${name}Ms`] = time;
            this[name] = new Date(time);
        });
    }
    get [Symbol.toStringTag]() { return 'Stats'; }
}

class Dirent {
    #kind;
    constructor(name, kind) {
        if (name === undefined) {
            throw new TypeError('name is required');
        }
        this.name = name;
        this.#kind = kind;
    }
    static is(entry, kind) {
        if (entry.#kind === undefined || entry.#kind === 0) {
            throw new InternalError('dentry type is not supported on this platform');
        }
        return entry.#kind === kind;
    }
    get [Symbol.toStringTag]() { return 'Dirent'; }
}
const isDirent = Dirent.is;
delete Dirent.is;
for (const [name, [bits, kind]] of Object.entries(FILE_TYPES)) {
    own.define(Stats.prototype, name, { [name]() {
        return (this.mode & 0o170000) === bits;
    } }[name]);
    own.define(Dirent.prototype, name, { [name]() { return isDirent(this, kind); } }[name]);
}

// The part of a view that is read into or written.
function partOf(buffer, offset, length) {
    if (!isView(buffer)) {
        throw new TypeError('not a typed array');
    }
    const view = own.view(buffer);
    const start = offset === undefined ? 0 : Math.trunc(Number(offset)) || 0;
    if (start < 0 || start > view.length) {
        throw new RangeError(`offset is out of range (must be <= ${view.length})`);
    }
    const rest = view.length - start;
    const size = length === undefined || length === null ? rest : Math.trunc(Number(length)) || 0;
    if (size < 0 || size > rest) {
        throw new RangeError(`length is out of range (must be <= ${rest})`);
    }
    return view.subarray(start, start + size);
}

function placeOf(value) {
    const place = value === undefined || value === null ? -1 : Number(value);
    return Number.isFinite(place) && place >= 0 ? Math.trunc(place) : -1;
}

function readInto(fd, buffer, offset, length, position) {
    const part = partOf(buffer, offset, length);
    const bytes = native.fsRead(fd, part.length, placeOf(position));
    part.set(bytes);
    return bytes.length;
}

function writeTo(fd, data, ...rest) {
    let [bytes, position] = [undefined, undefined];
    if (typeof data === 'string') {
        bytes = own.bytesOf(data, rest[1]);
        position = rest[0];
    } else {
        bytes = partOf(data, rest[0], rest[1]);
        position = rest[2];
    }
    const written = native.fsWrite(fd, own.raw(bytes), placeOf(position));
    if (written !== bytes.length) {
        const error = new Error('failed to write all the data');
        error.syscall = 'write';
        throw error;
    }
    return written;
}

const fdOf = (value) => Number(value) | 0;

// The calls, each as it is made when it is waited for.
const calls = {
    access(path, mode) {
        const raw = pathOf(path, 'path');
        if (mode !== undefined && typeof mode !== 'number') {
            throw new TypeError('"mode" must be a number');
        }
        native.fsAccess(raw, mode === undefined ? 0 : mode & 7);
    },
    readFile(path, options) {
        const raw = pathOf(path, 'path');
        const given = textOptions(options);
        const encoding = checkEncoding(given.encoding);
        return encoded(native.fsReadFile(raw, flagOf(given, 'r')), encoding);
    },
    writeFile(path, data, options) {
        const raw = pathOf(path, 'path');
        const given = textOptions(options);
        native.fsWriteFile(raw, contentOf(data, given.encoding), flagOf(given, 'w'),
            modeOf(given.mode, 0o666));
    },
    appendFile(path, data, options) {
        const raw = pathOf(path, 'path');
        const given = textOptions(options);
        native.fsWriteFile(raw, contentOf(data, given.encoding), flagOf(given, 'a'),
            modeOf(given.mode, 0o666));
    },
    stat(path, options) { return statOf(path, options, 'stat'); },
    lstat(path, options) { return statOf(path, options, 'lstat'); },
    mkdir(path, options) {
        const raw = pathOf(path, 'path');
        const given = optionsOf(options, 'number', 'mode', 'a number or object required');
        native.fsMakeFolder(raw, modeOf(given.mode, 0o777), howOf(given));
    },
    rmdir(path, options) {
        const raw = pathOf(path, 'path');
        const given = optionsOf(options, undefined, undefined, 'an object required');
        native.fsRemoveFolder(raw, howOf(given));
    },
    readdir(path, options) {
        const raw = pathOf(path, 'path');
        const given = textOptions(options);
        const encoding = given.encoding === undefined ? 'utf8' : checkEncoding(given.encoding);
        return native.fsList(raw).map(([bytes, kind]) => {
            const name = encoded(bytes, encoding);
            return given.withFileTypes ? new Dirent(name, kind) : name;
        });
    },
    readlink(path, options) {
        const raw = pathOf(path, 'path');
        const { encoding } = textOptions(options);
        checkEncoding(encoding);
        return encoded(native.fsReadLink(raw), encoding === undefined ? 'utf8' : encoding);
    },
    realpath(path, options) {
        const raw = pathOf(path, 'path');
        const { encoding } = textOptions(options);
        checkEncoding(encoding);
        return encoded(native.fsRealPath(raw), encoding === undefined ? 'utf8' : encoding);
    },
    rename(from, to) { native.fsRename(pathOf(from, 'oldPath'), pathOf(to, 'newPath')); },
    symlink(target, path, type) {
        const raw = [pathOf(target, 'target'), pathOf(path, 'path')];
        if (type !== undefined && typeof type !== 'string') {
            throw new TypeError('"type" must be a string');
        }
        native.fsSymlink(...raw);
    },
    unlink(path) { native.fsUnlink(pathOf(path, 'path')); },
};

function statOf(path, options, call) {
    const raw = pathOf(path, 'path');
    const given = optionsOf(options, undefined, undefined, 'an object required');
    if (given.bigint) {
        throw new TypeError('"bigint" is not supported');
    }
    try {
        return new Stats(native.fsStat(raw, call));
    } catch (error) {
        if (given.throwIfNoEntry === false && error.code === 'ENOENT') {
            return undefined;
        }
        throw error;
    }
}

const openFile = (path, flags, mode) => native.fsOpen(pathOf(path, 'path'),
    flags === undefined ? 'r' : String(flags).toWellFormed(), modeOf(mode, 0o666));

class FileHandle {
    #fd;
    constructor(fd) { this.#fd = fd; }
    get [Symbol.toStringTag]() { return 'FileHandle'; }
    get fd() { return this.#live(); }
    valueOf() { return this.#live(); }
    #live() {
        if (this.#fd < 0) {
            throw new TypeError('file was already closed');
        }
        return this.#fd;
    }
    async close() {
        const fd = this.#live();
        this.#fd = -1;
        native.fsClose(fd);
    }
    async stat() { return new Stats(native.fsStatOf(this.#live())); }
    async read(buffer, offset, length, position) {
        return { bytesRead: readInto(this.#live(), buffer, offset, length, position), buffer };
    }
    async write(buffer, ...rest) {
        return { bytesWritten: writeTo(this.#live(), buffer, ...rest), buffer };
    }
}

const promises = {
    async fstat(fd) { return new Stats(native.fsStatOf(fdOf(fd))); },
    async open(path, flags, mode) { return new FileHandle(openFile(path, flags, mode)); },
};
const fs = {
    constants: { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 },
    promises,
    Dirent,
    closeSync(fd) { native.fsClose(fdOf(fd)); },
    existsSync(path) {
        try {
            native.fsAccess(pathOf(path, 'path'), 0);
            return true;
        } catch (_) {
            return false;
        }
    },
    fstatSync(fd) { return new Stats(native.fsStatOf(fdOf(fd))); },
    openSync: openFile,
    readSync(fd, ...rest) { return readInto(fdOf(fd), ...rest); },
    writeSync(fd, ...rest) { return writeTo(fdOf(fd), ...rest); },
};
for (const [name, call] of Object.entries(calls)) {
    fs[`${name}Sync`] = { [`${name}Sync`](...args) { return call(...args); } }[`${name}Sync`];
    promises[name] = { async [name](...args) { return call(...args); } }[name];
    fs[name] = { [name](...args) {
        const callback = args.pop();
        if (typeof callback !== 'function') {
            throw new TypeError('"callback" must be a function');
        }
        let [failure, value] = [undefined, undefined];
        try {
            value = call(...args);
        } catch (error) {
            // What is wrong with the call itself is told at once.
            if (error.syscall === undefined) {
                throw error;
            }
            failure = error;
        }
        Promise.resolve().then(() => callback(failure, value));
    } }[name];
}
own.found.fs = fs;

const clearFiles = own.reset;
own.reset = function () {
    native.fsCloseAll();
    clearFiles();
};
