//! The module `xml`.

use super::*;

/// The value of a body which has `xml`, and `doc` of a document.
fn of(document: &str, body: &str) -> String {
    let document = document.replace('\\', "\\\\").replace('`', "\\`");
    let body = format!(
        "const xml = require('xml');
         const text = (it) => new TextDecoder().decode(it);
         try {{ const doc = xml.parse(`{document}`); {body} }}
         catch (e) {{ return `${{e.name}}: ${{e.message}}` }}"
    );
    match value(&body) {
        Ok(value) => value,
        Err(fault) => panic!("{body}: {fault:?}"),
    }
}

const NOTE: &str = r#"<note><to b="bar" a= "foo" >Tove</to><from>Jani</from></note>"#;

#[test]
fn documents_are_seen_as_objects() {
    for (document, body, expected) in [
        (NOTE, "return doc.none === undefined", "true"),
        (
            NOTE,
            "return doc.note.$name + doc.$root.$text",
            "noteToveJani",
        ),
        (
            NOTE,
            "return doc.note.$tag$to.$attr$b + doc.note.to.$attrs.a",
            "barfoo",
        ),
        (
            NOTE,
            "return doc.note.$tags.length + doc.note.$tags$from[0].$text",
            "2Jani",
        ),
        (
            NOTE,
            "return doc.note.to.$parent.$name + doc.note.$parent",
            "noteundefined",
        ),
        (
            NOTE,
            "return Object.getOwnPropertyNames(doc.note.to)",
            "$name,$attrs,$text",
        ),
        (
            NOTE,
            "return JSON.stringify(doc)",
            r#"{"note":{"$name":"note","$tags":[{"$name":"to","$attrs":{"b":"bar","a":"foo"},"$text":"Tove"},{"$name":"from","$text":"Jani"}]}}"#,
        ),
        (
            "<p:a xmlns:p='u'/>",
            "return doc.a.$ns + doc.a",
            "u[object XMLNode]",
        ),
        ("<a>俄<b/>语</a>", "return doc.a.$text", "俄语"),
        (
            "<!DOCTYPE a [<!ENTITY c SYSTEM '/etc/passwd'>]><a>&c;</a>",
            "return doc.a.$text + '|'",
            "|",
        ),
        (
            "a",
            "",
            "Error: failed to parse XML (a text outside of the root at 1:2)",
        ),
    ] {
        assert_eq!(of(document, body), expected, "{document} {body}");
    }
}

#[test]
fn documents_are_written_in_canonical_form() {
    let spaces = "<n0:p xmlns:n0='http://a'><n1:e xmlns:n1='http://b'><!-- c -->f</n1:e></n0:p>";
    let nested = "<a xmlns='u' xml:lang='en'><b xmlns='' z='1' p:y='&lt;&#13;' xmlns:p='v'/></a>";
    for (document, body, expected) in [
        (
            spaces,
            "return text(xml.c14n(doc.p.e))",
            r#"<n1:e xmlns:n0="http://a" xmlns:n1="http://b">f</n1:e>"#,
        ),
        (
            spaces,
            "return xml.exclusiveC14n(doc.p.e, null, true).toString()",
            r#"<n1:e xmlns:n1="http://b"><!-- c -->f</n1:e>"#,
        ),
        (
            spaces,
            "return text(xml.exclusiveC14n(doc.p.e, null, false, 'n0 x'))",
            r#"<n1:e xmlns:n0="http://a" xmlns:n1="http://b">f</n1:e>"#,
        ),
        (
            nested,
            "return xml.serializeToString(doc)",
            r#"<a xmlns="u" xml:lang="en"><b xmlns="" xmlns:p="v" z="1" p:y="&lt;&#xD;"></b></a>"#,
        ),
        // Canonical XML 1.0 §2.4, and Exclusive XML Canonicalization §3.
        (
            nested,
            "return xml.serializeToString(doc.a.b)",
            r#"<b xmlns:p="v" z="1" xml:lang="en" p:y="&lt;&#xD;"></b>"#,
        ),
        (
            nested,
            "return text(xml.exclusiveC14n(doc.a.b))",
            r#"<b xmlns:p="v" z="1" p:y="&lt;&#xD;"></b>"#,
        ),
        (
            NOTE,
            "return text(xml.exclusiveC14n(doc.note, doc.note.to))",
            "<note><from>Jani</from></note>",
        ),
        (
            "<a>&gt;<?b  c?>\"</a>",
            "return xml.serializeToString(doc)",
            "<a>&gt;<?b c?>\"</a>",
        ),
        (
            "<a/>",
            "return xml.exclusiveC14n(doc, 1)",
            "TypeError: \"excluding\" argument is not a XMLNode object",
        ),
    ] {
        assert_eq!(of(document, body), expected, "{document} {body}");
    }
}

#[test]
fn documents_are_changed() {
    let to = r#"<to a="foo" b="bar">Tove</to>"#;
    for (body, expected) in [
        (
            "doc.note.$text = '<A&>'",
            "<note>&lt;A&amp;&gt;</note>".to_string(),
        ),
        ("doc.note.setText(null)", "<note></note>".to_string()),
        (
            "delete doc.note.to",
            "<note><from>Jani</from></note>".to_string(),
        ),
        ("doc.note.removeChildren()", "<note></note>".to_string()),
        (
            "doc.note.$tags = [doc.note.to]",
            format!("<note>{to}</note>"),
        ),
        (
            "doc.note.to.setAttribute('b', null); doc.note.to.$attr$c = '<\"'",
            r#"<note><to a="foo" c="&lt;&quot;">Tove</to><from>Jani</from></note>"#.to_string(),
        ),
        (
            "doc.note.addChild(xml.parse(`<p:q xmlns:p='u'/>`))",
            format!(r#"<note xmlns:p="u">{to}<from>Jani</from><p:q></p:q></note>"#),
        ),
        (
            "doc.note.$tags = [xml.parse(`<p:q xmlns:p='u'/>`), xml.parse(`<p:q xmlns:p='v'/>`)]",
            r#"<note xmlns:p="u" xmlns:p1="v"><p:q></p:q><p1:q></p1:q></note>"#.to_string(),
        ),
    ] {
        let body = format!("{body}; return xml.serializeToString(doc)");
        assert_eq!(of(NOTE, &body), expected, "{body}");
    }
    for (body, expected) in [
        (
            "const to = doc.note.to; doc.$root.$text = ''; return to.$text + to.$parent.$name",
            "Tovenote",
        ),
        (
            "doc.note.$tag$x = doc.note.to",
            "TypeError: XMLNode.$tag$xxx is not assignable",
        ),
        (
            "doc.note.setAttribute('<', 'a')",
            "TypeError: attribute name \"<\" is not valid",
        ),
        (
            "doc.note.setAttribute('p:a', 'a')",
            "TypeError: attribute name \"p:a\" is not valid",
        ),
        ("doc.note.$attrs.a = 'b'", "TypeError:"),
    ] {
        let told = of(NOTE, body);
        assert!(told.starts_with(expected), "{body}: {told}");
    }
}

#[test]
fn documents_that_grow_end_at_a_limit() {
    let deep = "<a>".repeat(256) + &"</a>".repeat(256);
    let body = "const outer = xml.parse('<a/>'); outer.a.addChild(doc)";
    assert_eq!(of(&deep, body), "TypeError: elements more than 256 deep");
    let body = "return doc.a.$text + xml.serializeToString(doc).length";
    assert_eq!(of(&deep, body), (256 * 7).to_string());
    let wide = "const a = '<b/>'.repeat(1e7); return xml.parse('<c>' + a + '</c>').c.$text";
    let fault = value(&format!("const xml = require('xml'); {wide}"));
    assert!(
        matches!(fault, Err(Fault::Memory { .. } | Fault::Time { .. })),
        "{fault:?}"
    );
}
