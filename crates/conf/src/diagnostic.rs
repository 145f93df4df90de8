//! Diagnostics: what is wrong with a configuration, collected to be reported at once.
//!
//! Nothing in this crate stops at the first mistake. Whoever finds one pushes a [`Diagnostic`] and
//! goes on with the best guess; whoever drives the reading asks [`Diagnostics::has_errors`] at the
//! end. How they look is in `render`.
//!
//! At most [`FINDINGS`] mistakes and as many other findings are kept, so that a configuration of
//! nothing but mistakes costs no more than one that is right.
//!
//! Messages follow nginx's wording. What nginx does not say, such as what was expected or where
//! the other half of a pair stands, goes into the label, the second place and the help.

use crate::code::Code;
use crate::source::Span;

/// Number of mistakes that are kept, and of other findings. Arbitrary: nobody mends more at once.
pub(crate) const FINDINGS: usize = 1000;

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration is used, but probably not as it was meant.
    Warning,
    /// Something worth knowing.
    Note,
}

impl Severity {
    /// The level under which nginx would log it.
    pub fn level(self) -> &'static str {
        match self {
            Severity::Error => "emerg",
            Severity::Warning => "warn",
            Severity::Note => "notice",
        }
    }
}

/// A text in the place of another, with which a finding would not be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// Place of the old text: words of one statement.
    pub span: Span,
    /// The new text; empty where the words are taken out.
    pub text: String,
    /// A directive that is wanted in the same block, unless it stands there: its name, and the
    /// line.
    pub adds: Option<(&'static str, &'static str)>,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Severity of the finding.
    pub severity: Severity,
    /// Kind of the finding, if there is more to say about the kind.
    pub code: Option<Code>,
    /// Text of the finding, in nginx's words.
    pub message: String,
    /// Place of the finding.
    pub span: Option<Span>,
    /// Text that is written under the place.
    pub label: Option<String>,
    /// Second place that belongs to the finding, and the text under that place.
    pub also: Option<(Span, String)>,
    /// Advice about the finding.
    pub help: Option<String>,
    /// Changes of the text after which it is not made any more; what they do not change means what
    /// it meant.
    pub replacements: Vec<Replacement>,
}

impl Diagnostic {
    /// Sets the kind of the finding.
    pub fn code(&mut self, code: Code) -> &mut Diagnostic {
        self.code = Some(code);
        self
    }

    /// Sets what is written under the place.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Diagnostic {
        self.label = Some(label.into());
        self
    }

    /// Adds a second place.
    pub fn also(&mut self, span: Span, label: impl Into<String>) -> &mut Diagnostic {
        self.also = Some((span, label.into()));
        self
    }

    /// Adds a change that mends it.
    pub fn replace(&mut self, span: Span, text: impl Into<String>) -> &mut Diagnostic {
        self.replacements.push(Replacement {
            span,
            text: text.into(),
            adds: None,
        });
        self
    }

    /// Adds a change that mends it, if there is one.
    pub fn replace_with(&mut self, change: Option<(Span, String)>) -> &mut Diagnostic {
        match change {
            Some((span, text)) => self.replace(span, text),
            None => self,
        }
    }

    /// Adds a change that mends it, with a directive that stands in the same block then.
    pub fn replace_and_add(
        &mut self,
        span: Span,
        text: impl Into<String>,
        adds: (&'static str, &'static str),
    ) -> &mut Diagnostic {
        self.replacements.push(Replacement {
            span,
            text: text.into(),
            adds: Some(adds),
        });
        self
    }

    /// Adds a line of help.
    pub fn help(&mut self, help: impl AsRef<str>) -> &mut Diagnostic {
        let text = self.help.get_or_insert_default();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(help.as_ref());
        self
    }
}

/// The findings so far.
#[derive(Clone, Default, Debug)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
    errors: usize,
    /// Finding that stands for those that are not kept.
    surplus: Option<Box<Diagnostic>>,
}

impl Diagnostics {
    /// An empty collection.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Adds a mistake; more can be said about it by the methods of what is returned.
    pub fn push_error(
        &mut self,
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.push(Severity::Error, span.into(), message.into())
    }

    /// Adds a warning.
    pub fn push_warning(
        &mut self,
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.push(Severity::Warning, span.into(), message.into())
    }

    /// Adds a note.
    pub fn push_note(
        &mut self,
        span: impl Into<Option<Span>>,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.push(Severity::Note, span.into(), message.into())
    }

    /// Adds a finding that was made elsewhere.
    pub fn push_copy(&mut self, diagnostic: Diagnostic) {
        if self.has_room(diagnostic.severity) {
            self.all.push(diagnostic);
        }
    }

    /// Takes over the findings of another collection.
    pub fn append(&mut self, other: Diagnostics) {
        for diagnostic in other.all {
            self.push_copy(diagnostic);
        }
    }

    /// True if the configuration must be refused.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// True if there are no findings.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of findings.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The findings in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.all.iter()
    }

    fn push(&mut self, severity: Severity, span: Option<Span>, message: String) -> &mut Diagnostic {
        let diagnostic = Diagnostic {
            severity,
            code: None,
            message,
            span: span.filter(|span| *span != Span::NONE),
            label: None,
            also: None,
            help: None,
            replacements: Vec::new(),
        };
        if !self.has_room(severity) {
            return self.surplus.insert(Box::new(diagnostic));
        }
        self.all.push(diagnostic);
        // The vector has at least the element that was pushed just now.
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    /// Counts a finding that is about to be added; false if there are enough of its kind.
    fn has_room(&mut self, severity: Severity) -> bool {
        let others = self.all.len() - self.errors.min(FINDINGS);
        match severity {
            Severity::Error => {
                self.errors += 1;
                self.errors <= FINDINGS
            }
            Severity::Warning | Severity::Note => others < FINDINGS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_bounded_and_notes_leave_room_for_mistakes() {
        let mut diagnostics = Diagnostics::new();
        for _ in 0..FINDINGS * 3 {
            diagnostics.push_note(None, "x");
        }
        assert_eq!(
            (diagnostics.len(), diagnostics.has_errors()),
            (FINDINGS, false)
        );
        for _ in 0..FINDINGS * 3 {
            diagnostics.push_error(None, "y").help("z");
        }
        assert_eq!(diagnostics.len(), 2 * FINDINGS);
        assert!(diagnostics.has_errors());
    }
}
