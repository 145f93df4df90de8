//! The request for a certificate that an order is finished with (RFC 8555 §7.4).
//!
//! It names all that was ordered, and is signed by the new key.

use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::stack::Stack;
use openssl::x509::{X509NameBuilder, X509ReqBuilder};

use crate::challenge::alternative_names;
use crate::identifier::{self, Identifier};
use crate::key::Key;

/// The subject of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Empty: the names are enough.
    #[default]
    Empty,
    /// The first name.
    FirstName,
}

/// A request for names and a key, in DER.
pub(crate) fn request(
    names: &[Identifier],
    key: &Key,
    subject: Subject,
) -> Result<Vec<u8>, ErrorStack> {
    let mut builder = X509ReqBuilder::new()?;
    let mut who = X509NameBuilder::new()?;
    if let (Subject::FirstName, Some(name)) = (subject, identifier::first(names)) {
        who.append_entry_by_text("CN", &name.to_string())?;
    }
    builder.set_subject_name(&who.build())?;
    let mut extensions = Stack::new()?;
    extensions.push(alternative_names(names).build(&builder.x509v3_context(None))?)?;
    builder.add_extensions(&extensions)?;
    builder.set_pubkey(key.openssl())?;
    builder.sign(key.openssl(), MessageDigest::sha256())?;
    builder.build().to_der()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;
    use openssl::x509::X509Req;

    #[test]
    fn requests_name_all_and_perhaps_the_first() {
        let key = Key::generate(KeyKind::P256).unwrap();
        let words = ["192.0.2.1", "a.example", "b.example"];
        let names: Vec<_> = words
            .iter()
            .flat_map(|word| Identifier::read(word).unwrap())
            .collect();
        for (subject, expected) in [
            (Subject::Empty, None),
            (Subject::FirstName, Some("a.example")),
        ] {
            let der = request(&names, &key, subject).unwrap();
            let read = X509Req::from_der(&der).unwrap();
            assert!(read.verify(key.openssl()).unwrap());
            let entry = read.subject_name().entries().next();
            let name = entry.map(|it| it.data().as_slice().to_vec());
            assert_eq!(name.as_deref(), expected.map(str::as_bytes));
            let text = String::from_utf8(read.to_text().unwrap()).unwrap();
            assert!(text.contains("IP Address:192.0.2.1, DNS:a.example, DNS:b.example"));
        }
    }
}
