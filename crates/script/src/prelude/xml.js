// The module `xml`.
//
// A node is { kind, parent, prefix, name, space, spaces, attributes, children } for an element, and
// { kind, parent, text } for what has none of these; `spaces` is what it declares, prefix to name.

const MOST_DEPTH = 256;

function element(parent, prefix, name, space) {
    return { kind: 'open', parent, prefix, name, space, spaces: new Map(), attributes: [],
        children: [] };
}

function treeOf(pieces) {
    const root = element(undefined, '', '', '');
    let open = root;
    for (let at = 0; at < pieces.length; at++) {
        const kind = pieces[at];
        if (kind === 'close') {
            open = open.parent;
        } else if (kind === 'open') {
            const made = element(open, pieces[at + 1], pieces[at + 2], pieces[at + 3]);
            const spaces = pieces[at + 4], fields = pieces[at + 5];
            for (let i = 0; i < spaces.length; i += 2) {
                made.spaces.set(spaces[i], spaces[i + 1]);
            }
            for (let i = 0; i < fields.length; i += 4) {
                made.attributes.push({ prefix: fields[i], name: fields[i + 1],
                    space: fields[i + 2], value: fields[i + 3] });
            }
            open.children.push(made);
            open = made;
            at += 5;
        } else {
            const text = kind === 'instruction'
                ? pieces[at + 1] + (pieces[at + 2] === '' ? '' : ` ${pieces[at + 2]}`)
                : pieces[at + 1];
            open.children.push({ kind, parent: open, text });
            at += kind === 'instruction' ? 2 : 1;
        }
    }
    const top = root.children.find(isElement);
    top.parent = undefined;
    return top;
}

const isElement = (node) => node.kind === 'open';

function textOf(node) {
    if (!isElement(node)) {
        return node.kind === 'text' ? node.text : '';
    }
    let text = '';
    for (const child of node.children) {
        text += textOf(child);
    }
    return text;
}

const tagsOf = (node, name) => node.children
    .filter((child) => isElement(child) && (name === '' || child.name === name));

// The name of the namespace that a prefix has at a node; nothing for none.
function spaceAt(node, prefix) {
    for (let at = node; at !== undefined; at = at.parent) {
        if (at.spaces.has(prefix)) {
            return at.spaces.get(prefix);
        }
    }
    return '';
}

// A copy below another parent; none that would be too deep.
function copyOf(node, parent, depth) {
    if (depth > MOST_DEPTH) {
        throw new TypeError(`elements more than ${MOST_DEPTH} deep`);
    }
    if (!isElement(node)) {
        return { kind: node.kind, parent, text: node.text };
    }
    const made = element(parent, node.prefix, node.name, node.space);
    made.attributes = node.attributes.map((it) => ({ ...it }));
    for (const child of node.children) {
        made.children.push(copyOf(child, made, depth + 1));
    }
    return made;
}

function depthOf(node) {
    let depth = 0;
    for (let at = node; at !== undefined; at = at.parent) {
        depth++;
    }
    return depth;
}

// Declares at `top` what names below it need, as libxml2 does.
function reconcile(top, node) {
    const prefixOf = (named) => {
        if (named.space === '' || named.prefix === 'xml') {
            return named.prefix;
        }
        if (spaceAt(top, named.prefix) === named.space) {
            return named.prefix;
        }
        const base = named.prefix === '' ? 'default' : named.prefix;
        let prefix = base;
        for (let number = 1; spaceAt(top, prefix) !== '' && spaceAt(top, prefix) !== named.space;
            number++) {
            prefix = `${base}${number}`;
        }
        top.spaces.set(prefix, named.space);
        return prefix;
    };
    node.prefix = prefixOf(node);
    if (node.space === '' && spaceAt(node, '') !== '') {
        node.spaces.set('', '');
    }
    node.attributes.forEach((it) => { it.prefix = prefixOf(it); });
    for (const child of node.children) {
        if (isElement(child)) {
            reconcile(top, child);
        }
    }
}

function add(node, child) {
    const made = copyOf(child, node, depthOf(node) + 1);
    node.children.push(made);
    reconcile(node, made);
}

function remove(node, name) {
    node.children = node.children.filter((child) => !isElement(child)
        || (name !== '' && child.name !== name));
}

function setTags(node, list) {
    if (!Array.isArray(list)) {
        throw new TypeError('setval is not an array');
    }
    const wanted = list.map((it) => nodeOf(it));
    const before = node.children;
    node.children = [];
    try {
        wanted.forEach((child) => add(node, child));
    } catch (error) {
        node.children = before;
        throw error;
    }
}

function setText(node, value) {
    const text = value === null || value === undefined ? '' : String(value).toWellFormed();
    node.children = text === '' ? [] : [{ kind: 'text', parent: node, text }];
}

const written = (it) => (it.prefix === '' ? it.name : `${it.prefix}:${it.name}`);

function setAttribute(node, name, value) {
    const known = String(name).toWellFormed();
    const [prefix, local, more] = known.includes(':') ? known.split(':') : ['', known];
    if (!native.xmlIsName(known) || more !== undefined || local === ''
        || (known.includes(':') && prefix === '')) {
        throw new TypeError(`attribute name "${known}" is not valid`);
    }
    const space = prefix === 'xml' ? XML : prefix === '' ? '' : spaceAt(node, prefix);
    const isIt = (it) => it.name === local && it.space === space;
    if (value === null || value === undefined) {
        node.attributes = node.attributes.filter((it) => !isIt(it));
        return;
    }
    if (prefix === 'xmlns' || known === 'xmlns' || (prefix !== '' && space === '')) {
        throw new TypeError(`attribute name "${known}" is not valid`);
    }
    const text = String(value).toWellFormed();
    const found = node.attributes.find(isIt);
    if (found === undefined) {
        node.attributes.push({ prefix, name: local, space, value: text });
    } else {
        found.value = text;
    }
}

const XML = 'http://www.w3.org/XML/1998/namespace';

// What scripts see: proxies, each of a node.
const nodes = new WeakMap();

function nodeOf(value, message = '"this" is not a XMLNode object') {
    const node = typeof value === 'object' && value !== null ? nodes.get(value) : undefined;
    if (node === undefined) {
        throw new TypeError(message);
    }
    return node;
}

const shown = (value) => (value === undefined ? undefined
    : { value, enumerable: true, configurable: true, writable: true });

// A proxy of a node, with the properties that `names` and `find` tell.
function proxied(node, prototype, { names, find, change }) {
    const own = (name) => (typeof name === 'string' ? find(name) : undefined);
    const refuse = (_, name) => {
        throw new TypeError(`Cannot assign to read only property "${String(name)}"`);
    };
    const made = new Proxy(Object.create(prototype), {
        get: (target, name, self) => {
            const value = own(name);
            return value === undefined ? Reflect.get(target, name, self) : value;
        },
        has: (target, name) => own(name) !== undefined || Reflect.has(target, name),
        ownKeys: names,
        getOwnPropertyDescriptor: (_, name) => shown(own(name)),
        set: (_, name, value) => (change ? change(String(name), value) : refuse(_, name)),
        defineProperty: (_, name, it) => (change
            ? change(String(name), it.value) : refuse(_, name)),
        deleteProperty: (_, name) => (change ? change(String(name), undefined) : true),
        preventExtensions: () => false,
    });
    nodes.set(made, node);
    return made;
}

class XMLAttr {
    get [Symbol.toStringTag]() { return 'XMLAttr'; }
}

function attributesOf(node) {
    return proxied(node, XMLAttr.prototype, {
        names: () => [...new Set(node.attributes.map((it) => it.name))],
        find: (name) => valueOf(node, name),
    });
}

function valueOf(node, name) {
    const found = node.attributes.find((it) => it.name === name);
    return found === undefined ? undefined : found.value;
}

class XMLNode {
    get [Symbol.toStringTag]() { return 'XMLNode'; }
    addChild(child) { add(nodeOf(this), nodeOf(child)); }
    removeChildren(name) {
        if (name !== undefined && name !== null && typeof name !== 'string') {
            throw new TypeError('selector is not a string');
        }
        remove(nodeOf(this), name === undefined || name === null ? '' : name);
    }
    setAttribute(name, value) {
        if (typeof name !== 'string') {
            throw new TypeError('"name" argument is not a string');
        }
        setAttribute(nodeOf(this), name, value);
    }
    removeAttribute(name) { this.setAttribute(name, undefined); }
    removeAllAttributes() { nodeOf(this).attributes = []; }
    setText(text) { setText(nodeOf(this), text); }
    removeText() { setText(nodeOf(this), ''); }
}

// The property of a node, and the name behind one that has one.
function parted(name) {
    const found = /^\$(attr|tags|tag)\$(.*)$/s.exec(name);
    return found === null ? [name, ''] : [`$${found[1]}$`, found[2]];
}

const wrapped = (node) => (node === undefined ? undefined : proxied(node, XMLNode.prototype, {
    names: () => [
        '$name', ...(node.space === '' ? [] : ['$ns']),
        ...(node.attributes.length === 0 ? [] : ['$attrs']),
        ...(node.children.length > 0 && !isElement(node.children[0]) ? ['$text'] : []),
        ...(node.children.some(isElement) ? ['$tags'] : []),
    ],
    find: (name) => {
        const [property, rest] = parted(name);
        switch (property) {
        case '$name': return node.name;
        case '$ns': return node.space === '' ? undefined : node.space;
        case '$parent': return wrapped(node.parent);
        case '$text': return textOf(node);
        case '$attrs': return node.attributes.length === 0 ? undefined : attributesOf(node);
        case '$attr$': return valueOf(node, rest);
        case '$tags': case '$tags$': return tagsOf(node, rest).map(wrapped);
        case '$tag$': return wrapped(tagsOf(node, rest)[0]);
        default: return name === '' ? undefined : wrapped(tagsOf(node, name)[0]);
        }
    },
    change: (name, value) => {
        const [property, rest] = parted(name);
        if (property === '$attr$') {
            setAttribute(node, rest, value);
        } else if (property === '$text') {
            setText(node, value);
        } else if (property === '$tags' || property === '$tags$') {
            setTags(node, value);
        } else if (value !== undefined && value !== null) {
            throw new TypeError('XMLNode.$tag$xxx is not assignable, use addChild() or '
                + 'node.$tags = [node1, node2, ..] syntax');
        } else {
            remove(node, property === '$tag$' ? rest : name);
        }
        return true;
    },
}));

class XMLDoc {
    get [Symbol.toStringTag]() { return 'XMLDoc'; }
}

const document = (root) => proxied(root, XMLDoc.prototype, {
    names: () => [root.name],
    find: (name) => (name === '$root' || name === root.name ? wrapped(root) : undefined),
});

const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', '\t': '&#x9;',
    '\n': '&#xA;', '\r': '&#xD;' };
const entity = (c) => ENTITIES[c];

// The order of Canonical XML is that of code points.
function points(one, other) {
    const left = Array.from(one), right = Array.from(other);
    const at = left.findIndex((c, index) => c !== right[index]);
    if (at < 0) {
        return left.length - right.length;
    }
    return right[at] === undefined ? 1 : left[at].codePointAt(0) - right[at].codePointAt(0);
}

// The namespaces that stand at a node, the nearest of each prefix.
function scopeOf(node) {
    const scope = new Map();
    for (let at = node; at !== undefined; at = at.parent) {
        at.spaces.forEach((space, prefix) => {
            if (!scope.has(prefix)) {
                scope.set(prefix, space);
            }
        });
    }
    return scope;
}

// Canonical XML 1.0 §2.4: what is inherited of `xml:` where the ancestors are left out.
function inherited(node) {
    const found = [];
    for (let at = node.parent; at !== undefined; at = at.parent) {
        found.push(...at.attributes.filter((it) => it.space === XML
            && !found.concat(node.attributes).some((own) => own.space === XML
                && own.name === it.name)));
    }
    return found;
}

class Writer {
    parts = [];
    constructor(isExclusive, hasComments, excluded, prefixes) {
        Object.assign(this, { isExclusive, hasComments, excluded, prefixes });
    }

    // `shown` is what the nodes around have declared in the output.
    write(node, scope, shown, more) {
        if (node === this.excluded) {
            return;
        }
        if (!isElement(node)) {
            this.leaf(node);
            return;
        }
        const attributes = node.attributes.concat(more);
        const declared = this.declared(node, scope, shown, attributes);
        const name = written(node);
        this.parts.push('<', name);
        const around = new Map(shown);
        declared.forEach(([prefix, space]) => {
            around.set(prefix, space);
            this.field(prefix === '' ? 'xmlns' : `xmlns:${prefix}`, space);
        });
        attributes.sort((one, other) => points(one.space, other.space)
            || points(one.name, other.name))
            .forEach((it) => this.field(written(it), it.value));
        this.parts.push('>');
        for (const child of node.children) {
            let inner = scope;
            if (isElement(child) && child.spaces.size > 0) {
                inner = new Map(scope);
                child.spaces.forEach((space, prefix) => inner.set(prefix, space));
            }
            this.write(child, inner, around, []);
        }
        this.parts.push('</', name, '>');
    }

    leaf({ kind, text }) {
        if (kind === 'text') {
            this.parts.push(text.replace(/[&<>\r]/g, entity));
        } else if (kind === 'instruction') {
            this.parts.push('<?', text.replace(/\r/g, entity), '?>');
        } else if (this.hasComments) {
            this.parts.push('<!--', text.replace(/\r/g, entity), '-->');
        }
    }

    field(name, value) {
        this.parts.push(' ', name, '="', value.replace(/[&<"\t\n\r]/g, entity), '"');
    }

    declared(node, scope, shown, attributes) {
        // An attribute without a prefix is in no namespace.
        const used = [node.prefix, ...attributes.map((it) => it.prefix).filter((it) => it !== '')];
        const wanted = this.isExclusive
            ? [...used, ...this.prefixes.filter((prefix) => scope.has(prefix))]
            : [...scope.keys(), ''];
        return [...new Set(wanted)]
            .filter((prefix) => prefix !== 'xml')
            .map((prefix) => [prefix, scope.get(prefix) || ''])
            .filter(([prefix, space]) => (shown.get(prefix) || '') !== space)
            .sort(([one], [other]) => points(one, other));
    }
}

function canonical(value, isExclusive, [excluded, comments, prefixes]) {
    const node = nodeOf(value, 'argument is not a XMLNode object');
    let list = [];
    if (prefixes !== undefined && prefixes !== null) {
        if (typeof prefixes !== 'string') {
            throw new TypeError('"prefixes" argument is not a string');
        }
        list = prefixes.split(' ').filter((it) => it !== '')
            .map((it) => (it === '#default' ? '' : it));
    }
    const left = excluded === undefined || excluded === null ? undefined
        : nodeOf(excluded, '"excluding" argument is not a XMLNode object');
    const writer = new Writer(isExclusive, Boolean(comments) && left === undefined, left, list);
    writer.write(node, scopeOf(node), new Map(), isExclusive ? [] : inherited(node));
    return writer.parts.join('');
}

const c14n = (node, ...rest) => own.buffer(native.encode(canonical(node, false, rest)));

own.found.xml = {
    get [Symbol.toStringTag]() { return 'xml'; },
    parse(data) {
        return document(treeOf(native.xmlRead(own.raw(data))));
    },
    c14n,
    serialize: c14n,
    serializeToString: (node, ...rest) => canonical(node, false, rest),
    exclusiveC14n: (node, ...rest) => own.buffer(native.encode(canonical(node, true, rest))),
};
