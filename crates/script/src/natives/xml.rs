//! The functions below `xml` of the prelude.
//!
//! A document comes as a flat array: for each piece its kind, and what it consists of.

use rquickjs::{Array, Ctx, Error, Exception, Function, IntoJs, Value};

use super::{Result, Table, bytes};
use crate::host::Host;
use crate::xml::{self, Name, Piece, Stopped};

impl<'js, H: Host> Table<'js, H> {
    /// XML.
    pub(super) fn xml(&self) -> Result<()> {
        native!(self, "xmlRead", |state, ctx, raw: Value<'js>| {
            let raw = bytes(&ctx, &raw)?;
            let wrong =
                |why: &str| Exception::throw_message(&ctx, &format!("failed to parse XML ({why})"));
            let text = std::str::from_utf8(&raw).map_err(|_| wrong("bytes that are no UTF-8"))?;
            let mut list = List::new(&ctx)?;
            let mut take = |piece: Piece<'_>| {
                if state.is_late() {
                    return Err(Error::Exception);
                }
                list.add_piece(piece)
            };
            match xml::read(text, &mut take) {
                Ok(()) => Ok(list.made),
                Err(Stopped::Wrong(why)) => Err(wrong(&why)),
                Err(Stopped::Taker(error)) => Err(error),
            }
        });
        native!(self, "xmlIsName", |state, ctx, name: String| {
            xml::is_name(&name)
        });
        Ok(())
    }
}

/// An array that grows.
struct List<'js> {
    made: Array<'js>,
    count: usize,
}

impl<'js> List<'js> {
    fn new(ctx: &Ctx<'js>) -> Result<Self> {
        let made = Array::new(ctx.clone())?;
        Ok(List { made, count: 0 })
    }

    fn add(&mut self, value: impl IntoJs<'js>) -> Result<()> {
        self.made.set(self.count, value)?;
        self.count += 1;
        Ok(())
    }

    fn add_piece(&mut self, piece: Piece<'_>) -> Result<()> {
        match piece {
            Piece::Open(open) => {
                let ctx = self.made.ctx().clone();
                let mut spaces = List::new(&ctx)?;
                for (prefix, name) in &open.namespaces {
                    spaces.add(*prefix)?;
                    spaces.add(name.as_str())?;
                }
                let mut attributes = List::new(&ctx)?;
                for (name, value) in &open.attributes {
                    attributes.add_name(name)?;
                    attributes.add(value.as_str())?;
                }
                self.add("open")?;
                self.add_name(&open.name)?;
                self.add(spaces.made)?;
                self.add(attributes.made)
            }
            Piece::Close => self.add("close"),
            Piece::Text(text) => self.add_all(["text", text]),
            Piece::Comment(text) => self.add_all(["comment", text]),
            Piece::Instruction(target, content) => {
                self.add_all(["instruction", target])?;
                self.add(content)
            }
        }
    }

    fn add_name(&mut self, name: &Name<'_>) -> Result<()> {
        self.add_all([name.prefix, name.local])?;
        self.add(name.namespace.as_str())
    }

    fn add_all(&mut self, texts: [&str; 2]) -> Result<()> {
        texts.into_iter().try_for_each(|text| self.add(text))
    }
}
