//! JSON as text, for what is only written.

use std::fmt::Write;

/// An object that is being written.
pub struct Json {
    text: String,
    is_empty: bool,
}

impl Json {
    pub fn object() -> Json {
        Json {
            text: "{".to_owned(),
            is_empty: true,
        }
    }

    fn key(&mut self, key: &str) {
        if !std::mem::take(&mut self.is_empty) {
            self.text.push(',');
        }
        quote(&mut self.text, key);
        self.text.push(':');
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        quote(&mut self.text, value);
    }

    pub fn number(&mut self, key: &str, value: f64) {
        self.key(key);
        let value = if value.is_finite() { value } else { 0.0 };
        let _ = write!(self.text, "{value}");
    }

    /// An array of objects.
    pub fn array<T>(&mut self, key: &str, values: &[T], mut each: impl FnMut(&mut Json, &T)) {
        self.key(key);
        self.text.push('[');
        for (index, value) in values.iter().enumerate() {
            if index != 0 {
                self.text.push(',');
            }
            let mut object = Json::object();
            each(&mut object, value);
            self.text += &object.end();
        }
        self.text.push(']');
    }

    pub fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// Appends a string with its quotation marks.
pub fn quote(to: &mut String, text: &str) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            // Neither ends a script in a page.
            c if c.is_control() || c == '<' || c == '\u{2028}' || c == '\u{2029}' => {
                let _ = write!(to, "\\u{:04x}", c as u32);
            }
            c => to.push(c),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut json = Json::object();
        json.text("a\"", "x\n</script>\u{1}");
        json.number("n", 1.5);
        json.array("l", &[1, 2], |json, n| json.number("v", f64::from(*n)));
        let text = json.end();
        assert_eq!(
            text,
            "{\"a\\\"\":\"x\\n\\u003c/script>\\u0001\",\"n\":1.5,\"l\":[{\"v\":1},{\"v\":2}]}"
        );
    }
}
