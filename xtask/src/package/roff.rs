//! Man pages in the macros of man(7), and Markdown of our documents in them.
//!
//! Of Markdown there is what our documents use: headings, paragraphs, lists, tables (a row is a
//! paragraph), code in fences and in lines, links and emphasis. Comments are left out.

/// A page that is being written.
#[derive(Debug)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn new(name: &str, section: u8, date: &str) -> Page {
        let title = name.to_uppercase();
        Page(format!(
            ".TH {title} {section} {date} Millpond\n.nh\n.ad l\n"
        ))
    }

    pub(super) fn section(&mut self, title: &str) {
        self.0.push_str(&format!(".SH {title}\n"));
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(&line(text));
    }

    /// A word with what it means.
    pub(super) fn item(&mut self, word: &str, text: &str) {
        self.0
            .push_str(&format!(".TP\n\\fB{}\\fR\n{}", escape(word), line(text)));
    }

    /// Lines as they are.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.0.push_str(&verbatim(text));
    }

    /// Text that is roff already.
    pub(super) fn raw(&mut self, roff: &str) {
        self.0.push_str(roff);
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// A document of ours; its title is left out.
pub(super) fn from_markdown(text: &str) -> String {
    let mut out = String::new();
    let mut paragraph: Vec<&str> = Vec::new();
    let mut lines = text.lines();
    while let Some(read) = lines.next() {
        let is_own =
            read.is_empty() || read.starts_with(['#', '|', '<']) || read.starts_with("```");
        if is_own || read.starts_with("- ") {
            flush(&mut paragraph, &mut out);
        }
        if let Some(title) = read.strip_prefix('#') {
            out.push_str(&heading(title));
        } else if read.starts_with("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            out.push_str(&verbatim(&code.join("\n")));
        } else if read.starts_with('|') {
            out.push_str(&row(read));
        } else if !is_own {
            paragraph.push(read);
        }
    }
    flush(&mut paragraph, &mut out);
    out
}

/// Ends the paragraph, or the item of a list, that was being read.
fn flush(paragraph: &mut Vec<&str>, out: &mut String) {
    let lines: Vec<&str> = paragraph.drain(..).map(str::trim).collect();
    let text = lines.join(" ");
    if let Some(item) = text.strip_prefix("- ") {
        out.push_str(".IP \\(bu 2\n");
        out.push_str(&inline(item));
    } else if !text.is_empty() {
        out.push_str(".PP\n");
        out.push_str(&inline(&text));
    }
}

/// A heading behind its first hash; the title of the document is the page's own.
fn heading(title: &str) -> String {
    let words = title.trim_start_matches('#').trim();
    match title.chars().take_while(|c| *c == '#').count() {
        0 => String::new(),
        1 => format!(".SH {}\n", plain(words).to_uppercase()),
        _ => format!(".SS {}\n", plain(words)),
    }
}

fn row(text: &str) -> String {
    let cells: Vec<&str> = text.trim_matches('|').split(" | ").map(str::trim).collect();
    let is_rule = cells
        .iter()
        .all(|cell| cell.chars().all(|c| "-|: ".contains(c)));
    match cells.split_first() {
        _ if is_rule => String::new(),
        Some((first, rest)) => {
            let rest: Vec<&str> = rest
                .iter()
                .copied()
                .filter(|cell| !cell.is_empty())
                .collect();
            format!(".TP\n{}{}", inline(first), inline(&rest.join("; ")))
        }
        None => String::new(),
    }
}

fn verbatim(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(guarded).collect();
    format!(".PP\n.nf\n{}\n.fi\n", lines.join("\n"))
}

fn line(text: &str) -> String {
    guarded(text) + "\n"
}

/// A line that is not taken for a macro.
fn guarded(text: &str) -> String {
    let escaped = escape(text);
    if escaped.starts_with(['.', '\'']) {
        format!("\\&{escaped}")
    } else {
        escaped
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('`', "\\(ga")
}

/// A line of Markdown: code and emphasis in bold, links as their text.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            out.push_str(&format!("\\fB{}\\fR", escape(part)));
        } else {
            out.push_str(&escape(&plain(part)));
        }
    }
    if out.starts_with(['.', '\'']) {
        out.insert_str(0, "\\&");
    }
    out + "\n"
}

/// Text without the marks of links and emphasis.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("](") {
        out.push_str(before);
        rest = behind.split_once(')').map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    out.replace("**", "").replace(['[', '`'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_macros() {
        let text = "# Title\n\nOne `two-three`\n[four](x.md) **five**.\n\n## Part\n\n- item\n  goes on\n\
                    - next\n\n```sh\n.dot \\n\n```\n\n| a | b |\n|---|---|\n| `c` | d |\n<!-- no -->\n";
        let expected = ".PP\nOne \\fBtwo\\-three\\fR four five.\n.SH PART\n.IP \\(bu 2\nitem goes on\n\
                        .IP \\(bu 2\nnext\n.PP\n.nf\n\\&.dot \\en\n.fi\n.TP\na\nb\n.TP\n\\fBc\\fR\nd\n";
        assert_eq!(from_markdown(text), expected);
    }
}
