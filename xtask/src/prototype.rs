//! A C parameter, read from the text of a prototype.

/// The handles, as they are called without `MPI_`.
pub(crate) const HANDLES: [&str; 11] = [
    "Comm",
    "Datatype",
    "Errhandler",
    "File",
    "Group",
    "Info",
    "Message",
    "Op",
    "Request",
    "Session",
    "Win",
];

/// Whether a type is that of a function of the user, which a prototype passes by its address.
pub(crate) fn is_callback(base: &str) -> bool {
    ["_function", "_function_c", "_function_x"]
        .iter()
        .any(|end| base.ends_with(end))
}

/// A parameter in pieces.
pub(crate) struct Raw {
    pub constant: bool,
    pub base: String,
    pub stars: usize,
    pub array: bool,
    /// `int ranges[][3]`
    pub triples: bool,
    pub name: String,
}

impl Raw {
    /// `None` for an ellipsis.
    ///
    /// # Errors
    /// When the text is not a declaration.
    pub fn of(text: &str) -> Result<Option<Raw>, String> {
        if text == "..." {
            return Ok(None);
        }
        let constant = text.starts_with("const ");
        let rest = text.trim_start_matches("const ");
        let split = rest
            .find([' ', '*'])
            .ok_or_else(|| format!("`{text}` has no name"))?;
        let (base, declarator) = rest.split_at(split);
        let stars = declarator.matches('*').count();
        let name: String = declarator
            .chars()
            .filter(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let triples = declarator.ends_with("[][3]");
        Ok(Some(Raw {
            constant,
            base: base.to_string(),
            stars,
            array: declarator.contains("[]"),
            triples,
            name: name
                .strip_suffix('3')
                .filter(|_| triples)
                .unwrap_or(&name)
                .to_string(),
        }))
    }
}
