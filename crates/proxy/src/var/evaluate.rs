//! Evaluation of templates and variables for a request.
//!
//! 1. Nothing fails: what has no value is empty in a text.
//! 2. A value is put together in memory that is lent, and takes what it needs.

use bytes::Bytes;
use millpond_conf::value::{SizeTemplate, parse_offset};
use millpond_conf::{Part, Template, VarId};

use crate::request::scratch::{kept_or_copied, with_scratch};
use crate::request::{Request, Value};

impl Request {
    /// Evaluates a template.
    pub fn eval(&mut self, template: &Template) -> Bytes {
        if let Some(literal) = template.as_literal() {
            return Bytes::copy_from_slice(literal);
        }
        if let Some(word) = self.eval_word(template) {
            return word;
        }
        with_scratch(|out| {
            self.eval_into(template, out);
            kept_or_copied(out)
        })
    }

    /// The value of a template that is one variable which is one of a few words.
    pub fn eval_word(&self, template: &Template) -> Option<Bytes> {
        let [Part::Variable(id)] = &*template.parts else {
            return None;
        };
        let word = super::word(self, *id)?;
        Some(Bytes::from_static(word.as_bytes()))
    }

    /// The size that a template says; 0 where there is none, or it is no size.
    pub fn eval_size(&mut self, template: Option<&SizeTemplate>) -> u64 {
        let Some(template) = template else { return 0 };
        let value = self.eval(&template.0);
        let text = std::str::from_utf8(&value).ok();
        text.and_then(parse_offset).unwrap_or(0)
    }

    /// Appends the template's value to `out`.
    pub fn eval_into(&mut self, template: &Template, out: &mut Vec<u8>) {
        for part in template.parts.iter() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(id) => {
                    super::write(self, *id, out);
                }
                Part::Capture(group) => out.extend_from_slice(self.capture(*group)),
            }
        }
    }

    /// Appends the template's value to `out`, if its variables need no more than the request as it
    /// is; false, and `out` is to be forgotten, if they do.
    pub fn eval_plain(&self, template: &Template, out: &mut Vec<u8>) -> bool {
        template.parts.iter().all(|part| match part {
            Part::Literal(text) => {
                out.extend_from_slice(text);
                true
            }
            Part::Variable(id) => super::write_plain(self, *id, out).is_some(),
            Part::Capture(group) => {
                out.extend_from_slice(self.capture(*group));
                true
            }
        })
    }

    /// The template's value, if it is one variable whose value stands in the request as it is.
    pub fn lend(&self, template: &Template) -> Option<&[u8]> {
        match &*template.parts {
            [Part::Variable(id)] => super::lend(self, *id),
            _ => None,
        }
    }

    /// True when the template's value is neither empty nor "0" (nginx: `proxy_no_cache`, `if=`).
    pub fn is_true(&mut self, template: &Template) -> bool {
        let value = self.eval(template);
        !value.is_empty() && value.as_ref() != b"0"
    }

    /// Appends a variable's value to `out`; false if it has none.
    pub fn write_variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        super::write(self, id, out)
    }

    /// A variable's value.
    pub fn variable(&mut self, id: VarId) -> Value {
        let mut out = Vec::new();
        if super::write(self, id, &mut out) {
            Value::Found(Bytes::from(out))
        } else {
            Value::NotFound
        }
    }
}
