//! The affinity format (OpenMP 5.0, 6.14): text with fields like `%0.3n` or `%{thread_num}`.

/// What a field shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    TeamNumber,
    Teams,
    Level,
    Thread,
    Threads,
    Ancestor,
    Host,
    Process,
    NativeThread,
    Affinity,
}

const FIELDS: [(char, &str, Field); 10] = [
    ('t', "team_num", Field::TeamNumber),
    ('T', "num_teams", Field::Teams),
    ('L', "nesting_level", Field::Level),
    ('n', "thread_num", Field::Thread),
    ('N', "num_threads", Field::Threads),
    ('a', "ancestor_tnum", Field::Ancestor),
    ('H', "host", Field::Host),
    ('P', "process_id", Field::Process),
    ('i', "native_thread_id", Field::NativeThread),
    ('A', "thread_affinity", Field::Affinity),
];

/// Whose interface a program's code calls. Their libraries show different lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// That of gcc's libgomp.
    #[default]
    Gnu,
    /// That of LLVM's libomp.
    Llvm,
}

impl Interface {
    /// The affinity format where neither `OMP_AFFINITY_FORMAT` nor the program sets one.
    #[must_use]
    pub fn default_format(self) -> &'static str {
        match self {
            Interface::Gnu => "level %L thread %i affinity %A",
            Interface::Llvm => "OMP: pid %P tid %i thread %n bound to OS proc set {%A}",
        }
    }
}

/// The text that `format` makes of the fields' values. A number may be padded with zeros, all
/// values with spaces; without a dot a field is left-aligned, and a field that is unknown is
/// `undefined`.
pub fn expand(format: &str, mut value: impl FnMut(Field) -> String) -> String {
    let mut text = String::new();
    let mut rest = format.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let zeros = rest.next_if_eq(&'0').is_some();
        let right = rest.next_if_eq(&'.').is_some();
        let mut width = 0_usize;
        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
            rest.next();
            width = (width * 10 + digit as usize).min(4096);
        }
        let field = match rest.next() {
            Some('{') => {
                let name: String = rest.by_ref().take_while(|&c| c != '}').collect();
                FIELDS.iter().find(|field| field.1 == name)
            }
            Some(short) => FIELDS.iter().find(|field| field.0 == short),
            None => None,
        };
        let shown = field.map_or_else(|| "undefined".to_owned(), |field| value(field.2));
        let missing = width.saturating_sub(shown.chars().count());
        let number = shown.parse::<i64>().is_ok();
        match (right, zeros && right && number) {
            (true, true) => {
                let (sign, digits) = match shown.strip_prefix('-') {
                    Some(digits) => ("-", digits),
                    None => ("", shown.as_str()),
                };
                text.push_str(sign);
                text.extend(std::iter::repeat_n('0', missing));
                text.push_str(digits);
            }
            (true, false) => {
                text.extend(std::iter::repeat_n(' ', missing));
                text.push_str(&shown);
            }
            (false, _) => {
                text.push_str(&shown);
                text.extend(std::iter::repeat_n(' ', missing));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str) -> String {
        expand(format, |field| match field {
            Field::Thread => "3".into(),
            Field::Ancestor => "-1".into(),
            Field::Affinity => "0,2-3".into(),
            _ => "x".into(),
        })
    }

    #[test]
    fn fields_have_short_and_long_names_widths_and_padding() {
        assert_eq!(shown("a%%b %n %{thread_num}!"), "a%b 3 3!");
        assert_eq!(shown("[%4n|%.4n|%0.4n|%0.4a]"), "[3   |   3|0003|-001]");
        assert_eq!(shown("[%{thread_affinity}|%.7A]"), "[0,2-3|  0,2-3]");
        assert_eq!(shown("%{nonsense} %Z %"), "undefined undefined undefined");
    }
}
