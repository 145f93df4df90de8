// The module `querystring`.

const escape = (value) => encodeURIComponent(String(value).toWellFormed());

function unescape(text) {
    if (!/[%+]/.test(text)) {
        return text;
    }
    try {
        return decodeURIComponent(text);
    } catch (_) {
        const bytes = native.encode(text.toWellFormed());
        const made = [];
        for (let at = 0; at < bytes.length; at++) {
            const digits = String.fromCharCode(bytes[at + 1], bytes[at + 2]);
            if (bytes[at] === 37 && /^[0-9a-fA-F]{2}$/.test(digits)) {
                made.push(parseInt(digits, 16));
                at += 2;
            } else {
                made.push(bytes[at]);
            }
        }
        return native.decode(own.hex(Uint8Array.from(made)));
    }
}

const querystring = {
    escape,
    unescape,
    parse(text, separator, equals, options) {
        const made = Object.create(null);
        const between = separator ? String(separator) : '&';
        const sign = equals ? String(equals) : '=';
        const given = options && options.maxKeys;
        const most = given === undefined ? 1000 : given;
        const decode = (options && options.decodeURIComponent) || querystring.unescape;
        let count = 0;
        if (typeof text !== 'string' || text === '') {
            return made;
        }
        for (const part of text.split(between)) {
            if (most > 0 && count++ >= most) {
                break;
            }
            if (part === '') {
                continue;
            }
            const at = part.indexOf(sign);
            const [left, right] = at < 0
                ? [part, ''] : [part.slice(0, at), part.slice(at + sign.length)];
            const name = decode(left.replace(/\+/g, ' '));
            const value = decode(right.replace(/\+/g, ' '));
            if (!(name in made)) {
                made[name] = value;
            } else if (Array.isArray(made[name])) {
                made[name].push(value);
            } else {
                made[name] = [made[name], value];
            }
        }
        return made;
    },
    stringify(object, separator, equals, options) {
        if (object === null || typeof object !== 'object') {
            return '';
        }
        const between = separator ? String(separator) : '&';
        const sign = equals ? String(equals) : '=';
        const encode = (options && options.encodeURIComponent) || querystring.escape;
        const text = (value) => {
            switch (typeof value) {
            case 'string': case 'boolean': case 'bigint':
                return encode(String(value));
            case 'number':
                return Number.isFinite(value) ? encode(String(value)) : '';
            default:
                return '';
            }
        };
        const pairs = [];
        for (const name of Object.keys(object)) {
            const values = Array.isArray(object[name]) ? object[name] : [object[name]];
            values.forEach((value) => pairs.push(`${encode(name)}${sign}${text(value)}`));
        }
        return pairs.join(between);
    },
};
querystring.decode = querystring.parse;
querystring.encode = querystring.stringify;
own.found.querystring = querystring;
