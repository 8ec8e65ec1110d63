//! The formats of Slurm's lists: which columns a line has, and how wide each is.

/// A letter of a format, the heading of its column, and the name of its field.
pub type Letter = (char, &'static str, &'static str);

/// The fields that a list has.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// What a line is of.
    pub of: &'static str,
    pub letters: &'static [Letter],
}

/// A column: text as it is, or a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    Text(String),
    Field {
        heading: String,
        name: String,
        /// As wide as this; what is longer is cut.
        width: Option<usize>,
        is_right: bool,
    },
}

impl Fields {
    /// Reads a format such as `%.18i %j`.
    ///
    /// # Errors
    /// In words: a letter without a field.
    pub fn letters(&self, format: &str) -> Result<Vec<Column>, String> {
        let mut columns = Vec::new();
        let mut text = String::new();
        let mut rest = format.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            if rest.next_if_eq(&'%').is_some() {
                text.push('%');
                continue;
            }
            let is_right = rest.next_if_eq(&'.').is_some();
            let _ = rest.next_if_eq(&'#');
            let mut width = None;
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                rest.next();
                width = Some((width.unwrap_or(0) * 10 + digit as usize).min(10_000));
            }
            let letter = rest.next().unwrap_or(' ');
            let known = self.letters.iter().find(|known| known.0 == letter);
            let (_, heading, name) = known.ok_or_else(|| self.wrong(&letter.to_string()))?;
            if !text.is_empty() {
                columns.push(Column::Text(std::mem::take(&mut text)));
            }
            columns.push(Column::Field {
                heading: (*heading).into(),
                name: (*name).into(),
                width,
                is_right,
            });
        }
        if !text.is_empty() {
            columns.push(Column::Text(text));
        }
        Ok(columns)
    }

    /// Reads a format such as `JobID:10,Name:.30`.
    #[must_use]
    pub fn names(&self, format: &str) -> Vec<Column> {
        let mut columns = Vec::new();
        for item in format.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            let (name, width) = item.split_once(':').unwrap_or((item, "20"));
            let (width, is_right) = match width.strip_prefix('.') {
                Some(width) => (width, true),
                None => (width, false),
            };
            let digits = width.bytes().take_while(u8::is_ascii_digit).count();
            let (width, suffix) = width.split_at(digits);
            let name = name.to_ascii_lowercase();
            let known = self.letters.iter().find(|known| known.2 == name);
            let heading = known.map_or_else(|| name.to_ascii_uppercase(), |known| known.1.into());
            columns.push(Column::Field {
                heading,
                name,
                width: Some(width.parse().unwrap_or(20)),
                is_right,
            });
            // What stands behind the column in place of nothing.
            if !suffix.is_empty() {
                columns.push(Column::Text(suffix.to_owned()));
            }
        }
        columns
    }

    /// A line of a list. `value` says what a field holds, or that there is none of this name.
    ///
    /// # Errors
    /// In words: a field that there is not.
    pub fn line(
        &self,
        columns: &[Column],
        value: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        let mut text = String::new();
        for column in columns {
            match column {
                Column::Text(own) => text += own,
                Column::Field {
                    name,
                    width,
                    is_right,
                    ..
                } => {
                    let value = value(name).ok_or_else(|| self.wrong(name))?;
                    text += &padded(&value, *width, *is_right);
                }
            }
        }
        Ok(text)
    }

    fn wrong(&self, what: &str) -> String {
        format!("Invalid {} format specification: {what}", self.of)
    }
}

/// The line above a list.
#[must_use]
pub fn heading(columns: &[Column]) -> String {
    let one = |column: &Column| match column {
        Column::Text(text) => text.clone(),
        Column::Field {
            heading,
            width,
            is_right,
            ..
        } => padded(heading, *width, *is_right),
    };
    columns.iter().map(one).collect()
}

/// A text in a column of this width; what is longer is cut.
#[must_use]
pub fn padded(text: &str, width: Option<usize>, is_right: bool) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let cut: String = text.chars().take(width).collect();
    if is_right {
        format!("{cut:>width$}")
    } else {
        format!("{cut:width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        let fields = Fields {
            of: "job",
            letters: &[
                ('i', "JOBID", "jobid"),
                ('j', "NAME", "name"),
                ('T', "STATE", "state"),
            ],
        };
        let columns = fields.letters("%.18i|%j%%%8T").unwrap();
        assert_eq!(heading(&columns), "             JOBID|NAME%STATE   ");
        let error = fields.letters("%!").unwrap_err();
        assert_eq!(error, "Invalid job format specification: !");
        let columns = fields.names("JobID:6,Name:.5,State");
        assert_eq!(heading(&columns), "JOBID  NAMESTATE               ");
        let value = |name: &str| (name != "state").then(|| "123456789".to_owned());
        let line = fields.line(&columns[..2], &value).unwrap();
        assert_eq!(line, "12345612345");
        assert!(fields.line(&columns, &value).is_err());
    }
}
