//! The functions that the prelude is made on: each reaches the request whose turn it is.
//!
//! Bytes go into a script as arrays, and come out of it as texts, or as digits in an array: memory
//! of the engine is not looked into from here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rquickjs::function::Opt;
use rquickjs::{Array, Ctx, Error, Exception, Function, IntoJs as _, Object, TypedArray, Value};

use crate::dict::{Ask, Dict, Item, Rule, Told};
use crate::engine::State;
use crate::fault::one_line;
use crate::hash;
use crate::host::{Bound, Cached, Fetch, Header, Host, Level, Operation, Order, Purge, Text};
use crate::prelude;
use crate::url::{Url, UrlError};

/// The most random bytes of one call (Web Crypto's limit).
const MOST_RANDOM: usize = 65_536;

type Result<T> = std::result::Result<T, Error>;

/// The functions for a context.
pub(crate) fn make<'js, H: Host>(ctx: &Ctx<'js>, state: &Rc<State<H>>) -> Result<Object<'js>> {
    let table = Table {
        made: Object::new(ctx.clone())?,
        ctx: ctx.clone(),
        state: Rc::clone(state),
    };
    table.pure()?;
    table.process()?;
    table.facts()?;
    table.fields()?;
    table.answer()?;
    table.operations()?;
    Ok(table.made)
}

/// Adds the functions that a part of the prelude needs beside the first ones.
fn add<'js, H: Host>(table: &Table<'js, H>, part: &str) -> Result<()> {
    match part {
        "cache" => table.cache(),
        "crypto" => table.digests(),
        "fetch" => table.fetch(),
        "files" => table.files(),
        "process" => table.system(),
        "session" => table.session(),
        "shared" => table.dicts(),
        "subrequest" => table.subrequest(),
        "subtle" => table.subtle(),
        "xml" => table.xml(),
        "zlib" => table.packing(),
        _ => Ok(()),
    }
}

struct Table<'js, H> {
    made: Object<'js>,
    ctx: Ctx<'js>,
    state: Rc<State<H>>,
}

/// Adds a function to the table, with the state at hand.
macro_rules! native {
    (
        $table:ident, $name:literal,
        |$state:ident, $ctx:ident $(, $arg:ident: $type:ty)*| $body:expr
    ) => {{
        #[allow(unused_variables)]
        let $state = std::rc::Rc::clone(&$table.state);
        let function = Function::new(
            $table.ctx.clone(),
            #[allow(unused_variables)]
            move |$ctx: rquickjs::Ctx<'js> $(, $arg: $type)*| $body,
        )?;
        $table.made.set($name, function.with_name($name)?)?;
    }};
}

mod files;
mod process;
mod session;
mod subtle;
mod xml;

impl<'js, H: Host> Table<'js, H> {
    /// Bytes, parts of the prelude, time.
    fn pure(&self) -> Result<()> {
        native!(self, "encode", |state, ctx, text: String| {
            TypedArray::<u8>::new_copy(ctx, text.as_bytes())
        });
        native!(self, "decode", |state, ctx, hex: String| {
            let bytes = unhex(&ctx, &hex)?;
            Ok::<_, Error>(String::from_utf8_lossy(&bytes).into_owned())
        });
        native!(self, "part", |state,
                               ctx,
                               made: Object<'js>,
                               name: String| {
            let table = Table {
                made,
                ctx: ctx.clone(),
                state: Rc::clone(&state),
            };
            add(&table, &name)?;
            prelude::later(&ctx, &name)
        });
        native!(self, "now", |state, ctx| {
            let passed = (state.ground.clock)().duration_since(state.began);
            passed.as_secs_f64() * 1000.0
        });
        Ok(())
    }

    /// Digests, random numbers.
    fn digests(&self) -> Result<()> {
        native!(self, "digest", |state, ctx, name: String, hex: String| {
            let bytes = unhex(&ctx, &hex)?;
            let made = hash::digest(&name, &bytes);
            array(&ctx, &made.ok_or_else(|| unknown(&ctx, &name))?)
        });
        native!(self, "keyed", |state,
                                ctx,
                                name: String,
                                key: String,
                                hex: String| {
            let (key, bytes) = (unhex(&ctx, &key)?, unhex(&ctx, &hex)?);
            let made = hash::keyed(&name, &key, &bytes);
            array(&ctx, &made.ok_or_else(|| unknown(&ctx, &name))?)
        });
        native!(self, "random", |state, ctx, count: usize| {
            let mut bytes = vec![0; count.min(MOST_RANDOM)];
            (state.ground.random)(&mut bytes);
            array(&ctx, &bytes)
        });
        Ok(())
    }

    /// The server around any request.
    fn process(&self) -> Result<()> {
        native!(self, "log", |state, ctx, level: u8, text: String| {
            state.any(&ctx, |host| host.log(level_of(level), &text))
        });
        native!(self, "unhandled", |state, ctx, text: String| {
            state.any(&ctx, |host| host.unhandled(&one_line(&text)))
        });
        native!(
            self,
            "logOf",
            |state, ctx, id: u32, level: u8, text: String| {
                state.of(&ctx, id, |host| host.log(level_of(level), &text))
            }
        );
        native!(self, "number", |state, ctx, _bound: u8| {
            state.any(&ctx, |host| host.number(Bound::WorkerId))
        });
        native!(self, "place", |state, ctx, name: String| {
            state.any(&ctx, |host| host.place(&name))
        });
        Ok(())
    }

    /// Facts of the request, and its variables.
    fn facts(&self) -> Result<()> {
        native!(self, "text", |state, ctx, id: u32, text: u8| {
            let text = match text {
                0 => Text::Method,
                1 => Text::Uri,
                2 => Text::Args,
                3 => Text::HttpVersion,
                4 => Text::RemoteAddress,
                _ => Text::RequestLine,
            };
            state.of(&ctx, id, |host| lossy(&host.text(text)))
        });
        native!(self, "isInternal", |state, ctx, id: u32| {
            state.of(&ctx, id, H::is_internal)
        });
        native!(self, "isSubrequest", |state, ctx, id: u32| {
            state.of(&ctx, id, H::is_subrequest)
        });
        native!(self, "variable", |state, ctx, id: u32, name: String| {
            state.of(&ctx, id, |host| host.variable(&name).map(|it| lossy(&it)))
        });
        native!(self, "rawVariable", |state, ctx, id: u32, name: String| {
            let value = state.of(&ctx, id, |host| host.variable(&name))?;
            value.map(|it| array(&ctx, &it)).transpose()
        });
        native!(
            self,
            "setVariable",
            |state, ctx, id: u32, name: String, raw: Value<'js>| {
                let value = bytes(&ctx, &raw)?;
                state.tried(&ctx, id, |host| host.set_variable(&name, value))
            }
        );
        native!(self, "jsVarNames", |state, ctx, id: u32| {
            state.of(&ctx, id, H::js_var_names)
        });
        native!(self, "body", |state, ctx, id: u32| {
            let body = state.tried(&ctx, id, H::request_body)?;
            body.map(|it| array(&ctx, &it)).transpose()
        });
        Ok(())
    }

    /// Fields of request and answer.
    fn fields(&self) -> Result<()> {
        native!(self, "headersIn", |state, ctx, id: u32| {
            let lines = state.of(&ctx, id, H::headers_in)?;
            pairs(&ctx, &lines)
        });
        native!(self, "headersOut", |state, ctx, id: u32| {
            let lines = state.of(&ctx, id, H::headers_out)?;
            pairs(&ctx, &lines)
        });
        native!(
            self,
            "setHeader",
            |state, ctx, id: u32, name: String, raw: Array<'js>| {
                let values = raw.iter::<Value<'js>>();
                let values = values.map(|it| bytes(&ctx, &it?));
                let values = values.collect::<Result<Vec<Bytes>>>()?;
                if !is_token(name.as_bytes()) {
                    return Err(Exception::throw_type(&ctx, "invalid header name"));
                }
                if !values.iter().all(|value| is_value(value)) {
                    return Err(Exception::throw_type(&ctx, "invalid header value"));
                }
                state.tried(&ctx, id, |host| host.set_header_out(&name, values))
            }
        );
        Ok(())
    }

    /// The answer.
    fn answer(&self) -> Result<()> {
        native!(self, "status", |state, ctx, id: u32| {
            state.of(&ctx, id, H::status)
        });
        native!(self, "setStatus", |state, ctx, id: u32, status: u16| {
            state.tried(&ctx, id, |host| host.set_status(status))
        });
        native!(self, "sendHeader", |state, ctx, id: u32| {
            state.tried(&ctx, id, H::send_header)
        });
        native!(self, "send", |state, ctx, id: u32, raw: Value<'js>| {
            let data = bytes(&ctx, &raw)?;
            state.tried(&ctx, id, |host| host.send(data))
        });
        native!(
            self,
            "sendBuffer",
            |state, ctx, id: u32, raw: Value<'js>| {
                let data = bytes(&ctx, &raw)?;
                state.tried(&ctx, id, |host| host.send_buffer(data))
            }
        );
        native!(self, "done", |state, ctx, id: u32| {
            state.tried(&ctx, id, H::done)
        });
        native!(self, "finish", |state, ctx, id: u32| {
            state.tried(&ctx, id, H::finish)
        });
        native!(self, "decline", |state, ctx, id: u32| {
            state.tried(&ctx, id, H::decline)
        });
        native!(
            self,
            "return",
            |state, ctx, id: u32, status: u16, raw: Opt<Value<'js>>| {
                let raw = raw.0.filter(|raw| !raw.is_undefined());
                let text = raw.map(|raw| bytes(&ctx, &raw)).transpose()?;
                state.tried(&ctx, id, |host| host.return_(status, text))
            }
        );
        native!(self, "redirect", |state, ctx, id: u32, raw: Value<'js>| {
            let target = bytes(&ctx, &raw)?;
            state.tried(&ctx, id, |host| host.internal_redirect(target))
        });
        Ok(())
    }

    /// Shared dictionaries. A context knows those that it has asked, so that they are there at the
    /// end of a request, when there is no host.
    fn dicts(&self) -> Result<()> {
        let asked: RefCell<HashMap<String, Arc<Dict>>> = RefCell::default();
        native!(self, "dicts", |state, ctx| {
            let made = Array::new(ctx.clone())?;
            for (index, spec) in state.any(&ctx, H::dicts)?.into_iter().enumerate() {
                let row = Array::new(ctx.clone())?;
                row.set(0, spec.name)?;
                row.set(1, spec.capacity as f64)?;
                row.set(2, spec.is_of_numbers)?;
                row.set(3, spec.timeout.is_some())?;
                made.set(index, row)?;
            }
            Ok::<_, Error>(made)
        });
        native!(
            self,
            "dict",
            |state,
             ctx,
             name: String,
             what: String,
             key: String,
             value: Opt<Value<'js>>,
             time: Opt<Value<'js>>,
             first: Opt<Value<'js>>| {
                let known = asked.borrow().get(&name).cloned();
                let dict = match known {
                    Some(known) => Some(known),
                    None => state.any(&ctx, |host| host.dict(&name))?,
                };
                let ask = ask_of(&ctx, (&what, key), [value.0, time.0, first.0])?;
                match dict {
                    Some(dict) => {
                        let answer = dict.ask(ask, (state.ground.clock)());
                        asked.borrow_mut().entry(name).or_insert(dict);
                        told(&ctx, answer)
                    }
                    None => Err(Exception::throw_type(&ctx, "there is no such dictionary")),
                }
            }
        );
        Ok(())
    }

    /// Operations that a script waits for.
    fn operations(&self) -> Result<()> {
        native!(self, "timer", |state, ctx, id: u32, delay: f64| {
            let order = Order::Timer(Duration::from_millis(delay as u64));
            state.any_tried(&ctx, |host| host.begin(Operation { id, order }))
        });
        native!(self, "cancel", |state, ctx, id: u32| {
            state.any(&ctx, |host| host.cancel(id))
        });
        Ok(())
    }

    /// Requests to other locations.
    fn subrequest(&self) -> Result<()> {
        native!(
            self,
            "subrequest",
            |state,
             ctx,
             rid: u32,
             id: u32,
             uri: String,
             args: String,
             method: String,
             body: Value<'js>| {
                let body = Some(body).filter(|body| !body.is_undefined());
                let body = body.map(|raw| bytes(&ctx, &raw)).transpose()?;
                let order = Order::Subrequest {
                    uri,
                    args,
                    method,
                    body,
                };
                state.tried(&ctx, rid, |host| host.begin(Operation { id, order }))
            }
        );
        Ok(())
    }

    /// Requests to other servers.
    fn fetch(&self) -> Result<()> {
        native!(self, "checkUrl", |state, ctx, url: String| {
            url_of(&ctx, &url).map(|_| ())
        });
        native!(self, "fetch", |state,
                                ctx,
                                id: u32,
                                line: Array<'js>,
                                fields: Array<'js>,
                                body: Value<'js>,
                                most: f64,
                                verify: i32| {
            let order = Order::Fetch(Box::new(Fetch {
                url: asked_url(&ctx, &line.get::<String>(0)?)?,
                method: asked_method(&ctx, line.get(1)?)?,
                headers: asked_fields(&ctx, &fields)?,
                body: bytes(&ctx, &body)?,
                most: (most >= 0.0).then_some(most as usize),
                verify: (verify >= 0).then_some(verify > 0),
            }));
            state.any_tried(&ctx, |host| host.begin(Operation { id, order }))
        });
        Ok(())
    }

    /// The cache.
    fn cache(&self) -> Result<()> {
        native!(self, "cacheKey", |state, ctx, id: u32| {
            let key = state.tried(&ctx, id, H::cache_key)?;
            Ok::<_, Error>(key.map(|key| lossy(&key)))
        });
        native!(
            self,
            "cached",
            |state, ctx, id: u32, key: Value<'js>, zone: Option<String>| {
                let key = Some(key).filter(|key| !key.is_undefined());
                let key = key.map(|raw| bytes(&ctx, &raw)).transpose()?;
                let ask = |host: &mut H| host.cached(key, zone.as_deref());
                let found = state.tried(&ctx, id, ask)?;
                found.map(|found| cached(&ctx, &found)).transpose()
            }
        );
        native!(
            self,
            "purge",
            |state,
             ctx,
             rid: u32,
             id: u32,
             kind: String,
             what: Value<'js>,
             zone: Option<String>,
             is_soft: bool| {
                let kind = PURGES.into_iter().find(|known| *known == kind);
                let unknown = || Exception::throw_type(&ctx, "unknown kind of purge");
                let what = Some(what).filter(|what| !what.is_undefined());
                let order = Order::Purge(Box::new(Purge {
                    kind: kind.ok_or_else(unknown)?,
                    what: what.map(|raw| bytes(&ctx, &raw)).transpose()?,
                    zone,
                    is_soft,
                }));
                state.tried(&ctx, rid, |host| host.begin(Operation { id, order }))
            }
        );
        Ok(())
    }
}

/// The kinds of purges.
const PURGES: [&str; 7] = ["exact", "prefix", "wildcard", "host", "site", "tag", "all"];

fn cached<'js>(ctx: &Ctx<'js>, found: &Cached) -> Result<Object<'js>> {
    let made = Object::new(ctx.clone())?;
    made.set("status", found.status)?;
    made.set("age", found.age as f64)?;
    made.set("ttl", found.ttl as f64)?;
    made.set("size", found.size as f64)?;
    made.set("hits", found.hits as f64)?;
    let tags: Vec<String> = found.tags.iter().map(|tag| lossy(tag)).collect();
    made.set("tags", tags)?;
    Ok(made)
}

fn url_of(ctx: &Ctx<'_>, url: &str) -> Result<Url> {
    Url::read(url).map_err(|error| Exception::throw_type(ctx, &error.to_string()))
}

/// A URL whose path may stand in a request line.
fn asked_url(ctx: &Ctx<'_>, url: &str) -> Result<Url> {
    let url = url_of(ctx, url)?;
    if url.may_be_asked() {
        Ok(url)
    } else {
        Err(Exception::throw_type(ctx, &UrlError::Invalid.to_string()))
    }
}

fn asked_method(ctx: &Ctx<'_>, method: String) -> Result<String> {
    let is_fit = !method.is_empty() && method.bytes().all(|it| it > b' ' && it != 127);
    if is_fit {
        Ok(method)
    } else {
        Err(Exception::throw_type(ctx, "invalid Request method"))
    }
}

fn asked_fields<'js>(ctx: &Ctx<'js>, fields: &Array<'js>) -> Result<Vec<Header>> {
    let field = |pair: Result<Array<'js>>| {
        let pair = pair?;
        let (name, value): (String, String) = (pair.get(0)?, pair.get(1)?);
        if !is_token(name.as_bytes()) || !is_value(value.as_bytes()) {
            return Err(Exception::throw_type(ctx, "invalid header"));
        }
        Ok((Bytes::from(name), Bytes::from(value)))
    };
    fields.iter::<Array<'js>>().map(field).collect()
}

/// The question of a script to a dictionary.
fn ask_of<'js>(
    ctx: &Ctx<'js>,
    (what, key): (&str, String),
    [value, time, first]: [Option<Value<'js>>; 3],
) -> Result<Ask> {
    let number = |value: &Option<Value<'js>>| {
        let number = value.as_ref().and_then(Value::as_number);
        number.unwrap_or_default()
    };
    let item = || match value.as_ref().and_then(Value::as_string) {
        Some(text) => text.to_string().map(Item::Text),
        None => Ok(Item::Number(number(&value))),
    };
    let own_time = Some(number(&time)).filter(|time| *time >= 1.0);
    let time = own_time.map(|time| Duration::from_millis(time as u64));
    Ok(match what {
        "get" => Ask::Get(key),
        "take" => Ask::Take(key),
        "left" => Ask::Left(key),
        "set" => Ask::Put(key, item()?, Rule::Always, time),
        "add" => Ask::Put(key, item()?, Rule::Absent, time),
        "replace" => Ask::Put(key, item()?, Rule::Present, time),
        "incr" => Ask::Add(key, [number(&value), number(&first)], time),
        "items" => Ask::Items(number(&value) as usize),
        "clear" => Ask::Clear,
        "count" => Ask::Count,
        "free" => Ask::Free,
        _ => return Err(Exception::throw_type(ctx, "unknown question")),
    })
}

/// The answer of a dictionary; `null` where there is no room.
fn told<'js>(ctx: &Ctx<'js>, told: Told) -> Result<Value<'js>> {
    match told {
        Told::Nothing => Ok(Value::new_undefined(ctx.clone())),
        Told::Full => Ok(Value::new_null(ctx.clone())),
        Told::Done => true.into_js(ctx),
        Told::Count(count) => (count as f64).into_js(ctx),
        Told::Left(time) => (time.as_millis() as f64).into_js(ctx),
        Told::Value(item) => value_of_item(ctx, item),
        Told::Items(items) => {
            let made = Array::new(ctx.clone())?;
            for (index, (key, item)) in items.into_iter().enumerate() {
                let pair = Array::new(ctx.clone())?;
                pair.set(0, key)?;
                pair.set(1, value_of_item(ctx, item)?)?;
                made.set(index, pair)?;
            }
            made.into_js(ctx)
        }
    }
}

fn value_of_item<'js>(ctx: &Ctx<'js>, item: Item) -> Result<Value<'js>> {
    match item {
        Item::Text(text) => text.into_js(ctx),
        Item::Number(number) => number.into_js(ctx),
    }
}

fn level_of(level: u8) -> Level {
    match level {
        0 => Level::Info,
        1 => Level::Warn,
        _ => Level::Error,
    }
}

fn unknown(ctx: &Ctx<'_>, name: &str) -> Error {
    Exception::throw_type(ctx, &format!("not supported algorithm: \"{name}\""))
}

/// A text of the request as the language has it.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn array<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<TypedArray<'js, u8>> {
    TypedArray::new_copy(ctx.clone(), bytes)
}

/// Fields as an array of pairs.
pub(crate) fn pairs<'js>(ctx: &Ctx<'js>, lines: &[Header]) -> Result<Array<'js>> {
    let made = Array::new(ctx.clone())?;
    for (index, (name, value)) in lines.iter().enumerate() {
        let pair = Array::new(ctx.clone())?;
        pair.set(0, lossy(name))?;
        pair.set(1, lossy(value))?;
        made.set(index, pair)?;
    }
    Ok(made)
}

/// Bytes that the prelude's `raw` has made: a text, or digits in an array.
pub(crate) fn bytes(ctx: &Ctx<'_>, raw: &Value<'_>) -> Result<Bytes> {
    if let Some(text) = raw.as_string() {
        return Ok(Bytes::from(text.to_string()?));
    }
    let Some(array) = raw.as_array() else {
        return Err(Exception::throw_type(ctx, "failed to convert a value"));
    };
    let digits: String = array.get(0)?;
    unhex(ctx, &digits).map(Bytes::from)
}

/// Bytes of hexadecimal digits.
fn unhex(ctx: &Ctx<'_>, digits: &str) -> Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks_exact(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| match pair {
            [high, low] => Some(value_of(*high)? << 4 | value_of(*low)?),
            _ => None,
        })
        .collect();
    bytes.ok_or_else(|| Exception::throw_type(ctx, "failed to convert bytes"))
}

fn value_of(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// True for a name that a field may have (RFC 9110 §5.1).
fn is_token(name: &[u8]) -> bool {
    let is_mark = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || is_mark(*byte))
}

/// True for a value that a field may have (RFC 9110 §5.5).
fn is_value(value: &[u8]) -> bool {
    value
        .iter()
        .all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 127))
}
