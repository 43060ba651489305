//! The differences that stay, and why. `docs/apiserver.md` shows them.

/// A difference that is meant.
pub(crate) struct Listed {
    /// A group, or `*` for all.
    pub(crate) group: &'static str,
    /// A request of the group, or `*` for all.
    pub(crate) request: &'static str,
    /// A pointer into the answer, with all that is below it; a `*` stands for one step.
    pub(crate) field: &'static str,
    pub(crate) why: &'static str,
}

impl Listed {
    pub(crate) fn covers(&self, group: &str, request: &str, field: &str) -> bool {
        let is = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        let mut steps = field.split('/');
        is(self.group, group)
            && is(self.request, request)
            && self.field.split('/').all(|wanted| steps.next().is_some_and(|step| is(wanted, step)))
    }
}

/// All of them.
pub(crate) const DIFFERENCES: &[Listed] = &[];
