//! `more_set_input_headers`, `more_clear_input_headers`: fields of requests that are replaced or
//! removed. The lines are read in `filter/edit_headers.rs`.
//!
//! They run behind `rewrite` and its like, once for each location that a request comes to; all that
//! comes later (rules, variables, upstreams) finds the fields as they are then.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millpond_wire::header::Known;
use millpond_wire::http1::request::FieldRef;

use crate::filter::edit_headers::{Edit, Line, Name, frames};
use crate::filter::settings::FilterSettings;
use crate::request::Request;

/// Makes the edits of the location.
pub(crate) fn run(req: &mut Request) {
    let location = Arc::clone(&req.location);
    for line in location
        .settings
        .of::<FilterSettings>()
        .edit_headers
        .input
        .iter()
    {
        if line.is_about_type(req.head.get(Known::ContentType).unwrap_or_default()) {
            for edit in &line.edits {
                change(req, edit, line);
            }
        }
    }
}

fn change(req: &mut Request, edit: &Edit, line: &Line) {
    let given = edit.value.as_ref().map(|value| req.eval(value));
    let value = given.unwrap_or_default();
    let is_meant = |name: &[u8]| match &edit.name {
        Name::Is(_, own) => name.eq_ignore_ascii_case(own),
        Name::BeginsWith(prefix) => {
            let begin = name.get(..prefix.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
        }
    };
    let is_there = |field: &FieldRef<'_>| is_meant(field.name) && !frames(field.known);
    let there = req.head.fields().filter(is_there);
    let mut names: Vec<(Known, Bytes)> = there
        .map(|field| (field.known, Bytes::copy_from_slice(field.name)))
        .collect();
    if let Name::Is(known, own) = &edit.name
        && (!names.is_empty() || !line.only_present && !value.is_empty())
    {
        names = vec![(*known, own.clone())];
    }
    if !names.is_empty() {
        let fields = names.iter().map(|(known, name)| (*known, &**name, &*value));
        req.head = Rc::new(req.head.with(&fields.collect::<Vec<_>>()));
    }
}
