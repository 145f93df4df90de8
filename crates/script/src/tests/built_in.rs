//! Modules that are part of the engine: `fs`, `zlib`, `process`, `crypto.subtle`.

use super::*;

/// The value of a function body, in a folder of its own that is `dir` there.
fn told(body: &str) -> String {
    let place = Place::new();
    fs::write(place.folder.path().join("text"), "αβ").unwrap();
    let text = format!(
        "import fs from 'fs'; import zlib from 'zlib';
         const dir = '{}';
         async function f(r) {{ {body} }} export default {{ f }};",
        place.folder.path().display()
    );
    let (_, turn) = place
        .instance(&text)
        .call(Notes::default(), &entry("main.f"));
    match turn {
        Ok(Turn::Done(Some(value))) => String::from_utf8_lossy(&value).into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn files_are_read_and_written() {
    for (body, expected) in [
        ("return fs.readFileSync(`${dir}/text`, 'utf8')", "αβ"),
        (
            "return (await fs.promises.readFile(`${dir}/text`)).toString('hex')",
            "ceb1ceb2",
        ),
        (
            "return fs.readFileSync(Buffer.from(`${dir}/text`), {encoding: 'base64'})",
            "zrHOsg==",
        ),
        (
            "fs.writeFileSync(`${dir}/x`, 'a'); fs.appendFileSync(`${dir}/x`, Buffer.from('b'));
             await fs.promises.appendFile(`${dir}/x`, '63', 'hex');
             return fs.readFileSync(`${dir}/x`)",
            "abc",
        ),
        (
            "return await new Promise((done) => fs.readFile(`${dir}/text`, 'utf8',
                (error, text) => done(`${error} ${text}`)))",
            "undefined αβ",
        ),
        (
            "return await new Promise((done) => fs.stat(`${dir}/none`,
                (error) => done(`${error.code} ${error.errno} ${error.syscall}`)))",
            "ENOENT 2 stat",
        ),
        (
            "const h = await fs.promises.open(`${dir}/x`, 'w+', 0o600);
             const w = await h.write('abcdef'); const b = Buffer.alloc(4);
             const n = await h.read(b, 1, 3, 2); const s = await h.stat(); await h.close();
             let after; try { h.fd } catch (e) { after = e.message }
             return [w.bytesWritten, n.bytesRead, b.toString('hex'), s.size,
                (s.mode & 0o777).toString(8), after].join()",
            "6,3,00636465,6,600,file was already closed",
        ),
        (
            "const fd = fs.openSync(`${dir}/text`); const b = Buffer.alloc(2);
             fs.readSync(fd, b, 0); fs.readSync(fd, b, 0); fs.closeSync(fd);
             return b.toString('hex')",
            "ceb2",
        ),
        (
            "fs.mkdirSync(`${dir}/a/b/c`, {recursive: true}); fs.writeFileSync(`${dir}/a/b/f`, '');
             fs.symlinkSync('f', `${dir}/a/b/l`);
             const all = fs.readdirSync(`${dir}/a/b`, {withFileTypes: true});
             const told = all.map((it) => it.name + (it.isFile() ? 'f' : it.isDirectory() ? 'd'
                : it.isSymbolicLink() ? 'l' : '?')).sort();
             fs.rmdirSync(`${dir}/a`, {recursive: true});
             return told + fs.existsSync(`${dir}/a`)",
            "cd,ff,llfalse",
        ),
        (
            "fs.renameSync(`${dir}/text`, `${dir}/other`); fs.symlinkSync('other', `${dir}/l`);
             const told = [fs.readlinkSync(`${dir}/l`), fs.lstatSync(`${dir}/l`).isSymbolicLink(),
                fs.statSync(`${dir}/l`).size, fs.realpathSync(`${dir}/l`).endsWith('/other')];
             fs.unlinkSync(`${dir}/l`); return told + fs.existsSync(`${dir}/l`)",
            "other,true,4,truefalse",
        ),
        (
            "const s = fs.statSync(dir); return s.mtime instanceof Date && s.isDirectory()",
            "true",
        ),
        (
            "return require('fs') === fs && require('zlib') === zlib",
            "true",
        ),
    ] {
        assert_eq!(told(body), expected, "{body}");
    }
}

/// Calls of `fs` that fail, and the beginning of what is thrown.
const FAILING: &[(&str, &str)] = &[
    (
        "fs.readFileSync(`${dir}/none`)",
        "Error No such file or directory ENOENT open",
    ),
    ("fs.readFileSync(dir)", "Error Is a directory EISDIR read"),
    (
        "fs.readdirSync(`${dir}/text`)",
        "Error Not a directory ENOTDIR opendir",
    ),
    (
        "fs.mkdirSync(`${dir}/text/a/b`, {recursive: true})",
        "Error Not a directory ENOTDIR mkdir",
    ),
    (
        "fs.rmdirSync(`${dir}/none`)",
        "Error No such file or directory ENOENT rmdir",
    ),
    (
        "fs.accessSync(`${dir}/none`)",
        "Error No such file or directory ENOENT access",
    ),
    ("fs.closeSync(1)", "Error Bad file descriptor EBADF close"),
    (
        "fs.writeSync(1, 'x')",
        "Error Bad file descriptor EBADF write",
    ),
    (
        "fs.readFileSync('/dev/zero')",
        "Error File too large EFBIG read",
    ),
    (
        "fs.readFileSync('x'.repeat(8192))",
        "RangeError \"path\" is too long >= 4096",
    ),
    (
        "fs.readFileSync('a\\0b')",
        "TypeError \"path\" must be a Buffer without null bytes",
    ),
    (
        "fs.readFileSync(7)",
        "TypeError \"path\" must be a string or Buffer",
    ),
    (
        "fs.openSync(dir, 'q')",
        "TypeError Unknown file open flags: \"q\"",
    ),
    (
        "fs.readFile(dir)",
        "TypeError \"callback\" must be a function",
    ),
    (
        "fs.readFileSync(dir, true)",
        "TypeError Unknown options type",
    ),
    (
        "fs.readFileSync(dir, 'latin7')",
        "TypeError \"latin7\" encoding is not supported",
    ),
];

/// The same of other modules.
const WRONG: &[(&str, &str)] = &[
    ("require('net')", "Error Cannot find module \"net\""),
    (
        "process.kill(0x7ffffff0, 0)",
        "TypeError kill failed with (No such process)",
    ),
    (
        "process.kill(0)",
        "TypeError kill failed with (No such process)",
    ),
    (
        "process.kill(-1)",
        "TypeError kill failed with (No such process)",
    ),
    ("process.kill(1, 'TERM')", "TypeError unknown signal: TERM"),
    (
        "zlib.inflateSync('x')",
        "InternalError failed to inflate the data",
    ),
    (
        "zlib.deflateSync('x', {level: 10})",
        "RangeError level must be in the range -1..9",
    ),
    (
        "zlib.inflateRawSync('x', {windowBits: 0})",
        "RangeError windowBits must be",
    ),
    (
        "zlib.deflateSync(7)",
        "TypeError data is not a string or Buffer-like object",
    ),
];

#[test]
fn what_fails_is_told_as_such() {
    for (body, expected) in FAILING.iter().chain(WRONG) {
        let tried = format!(
            "try {{ {body} }} catch (e) {{
                return [e.name, e.message, e.code, e.syscall].filter((it) => it).join(' ') }}"
        );
        let text = told(&tried);
        assert!(text.starts_with(*expected), "{body}: {text}");
    }
}

#[test]
fn files_that_a_request_has_opened_are_closed_with_it() {
    let place = Place::new();
    let text = "import fs from 'fs';
        function open() {
            for (;;) { try { fs.openSync('/dev/null') } catch (e) { return e.code } }
        }
        export default { open };";
    let program = place.file("main.js", text).program().unwrap();
    for request in 1..4 {
        let mut instance = place.engine.lend(&program, LIMITS).unwrap();
        let call = Entry {
            function: "main.open",
            request,
            errand: Errand::Call,
        };
        let (_, turn) = instance.call(Notes::default(), &call);
        assert_eq!(turn, Ok(Turn::Done(Some(Bytes::from_static(b"EMFILE")))));
    }
    // One context has served all: it had nothing open when it was lent again.
    assert_eq!(place.engine.idle_count(), 1);
}

#[test]
fn bytes_are_packed_and_unpacked() {
    for (body, expected) in [
        (
            "return zlib.deflateRawSync('WAKA').toString('base64')",
            "C3f0dgQA",
        ),
        (
            "return zlib.deflateSync('WAKA').toString('base64')",
            "eJwLd/R2BAAC+gEl",
        ),
        (
            "return zlib.inflateRawSync(Buffer.from('C3f0dgQA', 'base64'))",
            "WAKA",
        ),
        (
            "const dictionary = Buffer.from('abcabc');
             return zlib.inflateSync(zlib.deflateSync('abcabcabc', {dictionary}), {dictionary})",
            "abcabcabc",
        ),
        (
            "let bytes = Buffer.alloc(1 << 14); for (let i = 0; i < 2; i++)
                bytes = zlib.deflateSync(bytes); return bytes.length < 100",
            "true",
        ),
        (
            "return [process.env.A, process.env.HOME, process.argv, process.pid > 0]",
            "b,,program,true",
        ),
    ] {
        assert_eq!(told(body), expected, "{body}");
    }
}

/// Helpers, and the kinds of keys with what it takes to make one and what it is for.
const SUBTLE: &str = "
    const s = crypto.subtle;
    const hex = (bytes) => Buffer.from(bytes).toString('hex');
    const text = new TextEncoder().encode('text');
    async function refused(action) {
        try { await action() } catch (e) { return `${e.name}: ${e.message}` }
        return 'taken';
    }
    const PAIRS = [
        [{ name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', modulusLength: 1024 }, ['sign', 'verify']],
        [{ name: 'RSA-PSS', hash: 'SHA-1', modulusLength: 1024, saltLength: 8 },
            ['sign', 'verify']],
        [{ name: 'RSA-OAEP', hash: 'SHA-256', modulusLength: 1024 }, ['encrypt', 'decrypt']],
        [{ name: 'ECDSA', namedCurve: 'P-384', hash: 'SHA-512' }, ['sign', 'verify']],
        [{ name: 'Ed25519' }, ['sign', 'verify']],
    ];";

#[test]
fn keys_go_out_and_come_back() {
    let body = "const told = [];
        for (const [algorithm, usages] of PAIRS) {
            const made = await s.generateKey(algorithm, true, usages);
            const raw = ['ECDSA', 'Ed25519'].includes(algorithm.name) ? ['raw'] : [];
            const keys = [];
            for (const [key, formats] of [[made.privateKey, ['pkcs8', 'jwk']],
                [made.publicKey, ['spki', 'jwk', ...raw]]]) {
                for (const format of formats) {
                    const out = await s.exportKey(format, key);
                    keys.push([key, await s.importKey(format, out, algorithm, true, key.usages)]);
                }
            }
            const [, again] = keys[0];
            const [, shown] = keys[3];
            if (usages[0] === 'sign') {
                const signature = await s.sign(algorithm, again, text);
                told.push(await s.verify(algorithm, shown, signature, text));
                told.push(await s.verify(algorithm, made.publicKey, signature, new Uint8Array(4)));
            } else {
                const sealed = await s.encrypt(algorithm, shown, text);
                told.push(hex(await s.decrypt(algorithm, again, sealed)) === hex(text), false);
            }
            for (const [one, other] of keys) {
                const form = one.type === 'private' ? 'pkcs8' : 'spki';
                const out = await s.exportKey(form, one);
                told.push(hex(out) === hex(await s.exportKey(form, other)));
            }
        }
        return told.filter((it) => it).length + '/' + told.length";
    assert_eq!(told(&format!("{SUBTLE} {body}")), "27/32");
}

#[test]
fn ciphers_and_digests_are_those_of_the_standards() {
    for (body, expected) in [
        (
            "return hex(await s.digest('SHA-1', text))",
            "372ea08cab33e71c02c651dbc83a474d32c676ea",
        ),
        // RFC 4231, case 2.
        (
            "const key = await s.importKey('raw', Buffer.from('Jefe'),
                { name: 'HMAC', hash: { name: 'SHA-256' } }, false, ['sign', 'verify']);
             const data = Buffer.from('what do ya want for nothing?');
             const made = await s.sign('HMAC', key, data);
             return hex(made).slice(0, 16) + await s.verify('HMAC', key, made, data)",
            "5bdcc146bf60754etrue",
        ),
        // SP 800-38A F.2.1.
        (
            "const key = await s.importKey('raw', Buffer.from('2b7e151628aed2a6abf7158809cf4f3c',
                'hex'), 'AES-CBC', false, ['encrypt', 'decrypt']);
             const iv = Buffer.from('000102030405060708090a0b0c0d0e0f', 'hex');
             const made = await s.encrypt({ name: 'AES-CBC', iv }, key,
                Buffer.from('6bc1bee22e409f96e93d7e117393172a', 'hex'));
             return hex(made).slice(0, 32)",
            "7649abac8119b246cee98e9b12e9197d",
        ),
        (
            "const key = await s.generateKey({ name: 'AES-GCM', length: 256 }, true, ['encrypt',
                'decrypt', 'wrapKey', 'unwrapKey']);
             const by = { name: 'AES-GCM', iv: new Uint8Array(12), additionalData: text };
             const wrapped = await s.wrapKey('jwk', key, key, by);
             const same = await s.unwrapKey('jwk', wrapped, key, by, 'AES-GCM', true, ['decrypt']);
             const sealed = await s.encrypt(by, key, text);
             return [sealed.byteLength, hex(await s.decrypt(by, same, sealed)) === hex(text),
                hex(await s.exportKey('raw', same)) === hex(await s.exportKey('raw', key))].join()",
            "20,true,true",
        ),
        // RFC 6070.
        (
            "const key = await s.importKey('raw', Buffer.from('passwordPASSWORDpassword'), 'PBKDF2',
                false, ['deriveBits']);
             return hex(await s.deriveBits({ name: 'PBKDF2', hash: 'SHA-1', iterations: 4096,
                salt: Buffer.from('saltSALTsaltSALTsaltSALTsaltSALTsalt') }, key, 200))",
            "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038",
        ),
        (
            "const [a, b] = [await s.generateKey({ name: 'ECDH', namedCurve: 'P-256' }, false,
                ['deriveBits', 'deriveKey']), await s.generateKey({ name: 'ECDH',
                namedCurve: 'P-256' }, false, ['deriveBits'])];
             const of = (own, other) => s.deriveBits({ name: 'ECDH', public: other.publicKey },
                own.privateKey, 256);
             const key = await s.deriveKey({ name: 'ECDH', public: b.publicKey }, a.privateKey,
                { name: 'AES-GCM', length: 128 }, true, ['encrypt']);
             const bits = hex(await of(a, b));
             return [bits === hex(await of(b, a)), bits.startsWith(hex(await
                s.exportKey('raw', key)))].join()",
            "true,true",
        ),
    ] {
        assert_eq!(told(&format!("{SUBTLE} {body}")), expected, "{body}");
    }
}

#[test]
fn keys_do_what_they_are_for_and_nothing_else() {
    for (body, expected) in [
        (
            "s.importKey('raw', text, 'AES-CBC', true, ['sign'])",
            "unsupported key usage",
        ),
        (
            "s.importKey('raw', text, 'AES-CBC', true, ['encrypt'])",
            "AES Invalid key length",
        ),
        (
            "s.importKey('raw', text, 'none', true, [])",
            "unknown algorithm name: \"none\"",
        ),
        (
            "s.importKey('pem', text, 'HMAC', true, [])",
            "unknown key format: \"pem\"",
        ),
        (
            "s.importKey('raw', 7, 'HKDF', true, [])",
            "is not a Buffer-like object",
        ),
        (
            "s.importKey('spki', text, { name: 'ECDSA', namedCurve: 'P-256' }, true, [])",
            "Error",
        ),
        ("s.digest('MD5', text)", "unknown hash name: \"MD5\""),
        ("s.exportKey('raw', {})", "is not a CryptoKey object"),
        (
            "s.importKey('raw', text, 'HKDF', true, ['deriveBits']).then((key) => s.deriveBits(
                { name: 'HKDF', hash: 'SHA-1', salt: text, info: text }, key, 1e9))",
            "HKDF length is too large",
        ),
        (
            "s.generateKey({ name: 'AES-GCM', length: 128 }, false, ['encrypt']).then((key) =>
                s.exportKey('raw', key))",
            "provided key cannot be extracted",
        ),
        (
            "s.generateKey({ name: 'AES-GCM', length: 128 }, false, ['encrypt']).then((key) =>
                s.decrypt({ name: 'AES-GCM', iv: text }, key, text))",
            "key does not support decrypt operation",
        ),
        (
            "s.generateKey({ name: 'AES-GCM', length: 128 }, false, ['decrypt']).then((key) =>
                s.decrypt({ name: 'AES-GCM', iv: text }, key, new Uint8Array(20)))",
            "the data is not what was sealed",
        ),
        (
            "s.generateKey({ name: 'RSA-PSS', hash: 'SHA-1', modulusLength: 8192 }, true, [])",
            "\"modulusLength\" must be from 512 to 2048",
        ),
    ] {
        let text = told(&format!("{SUBTLE} return refused(() => {body})"));
        assert!(text.contains(expected), "{body}: {text}");
    }
    // It would take hours.
    let endless = "const key = await s.importKey('raw', text, 'PBKDF2', false, ['deriveBits']);
        await s.deriveBits({ name: 'PBKDF2', hash: 'SHA-1', iterations: 0xffffffff,
            salt: new Uint8Array(16) }, key, 1e6)";
    let text = told(&format!("{SUBTLE} {endless}"));
    assert!(text.starts_with("Err(Time"), "{text}");
}
