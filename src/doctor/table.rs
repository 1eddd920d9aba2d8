//! What a doctor found, line by line, and whether all of it is well. It does not know what was looked at.

/// What was found.
pub(super) struct Table {
    /// For people.
    pub(super) text: String,
    /// Nothing is wrong.
    pub(super) well: bool,
}

impl Table {
    /// Begins with this text, and nothing wrong.
    pub(super) fn new(text: String) -> Self {
        Table { text, well: true }
    }

    pub(super) fn good(&mut self, what: &str) {
        self.text += &format!("ok   {what}\n");
    }

    pub(super) fn note(&mut self, what: &str) {
        self.text += &format!("note {what}\n");
    }

    /// Something that says itself what to do.
    pub(super) fn wrong(&mut self, what: &str) {
        self.well = false;
        self.text += &format!("FAIL {what}\n");
    }

    pub(super) fn bad(&mut self, what: &str, next: &str) {
        self.wrong(&format!("{what}\n     next: {next}"));
    }

    /// What else was found.
    pub(super) fn add(&mut self, more: &Table) {
        self.text += &more.text;
        self.well &= more.well;
    }
}
