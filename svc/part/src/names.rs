//! Users and groups by name, from the system's files.

use std::fs;

/// The number of a user or group that is written as a number or a name; `file` is `/etc/passwd` or
/// `/etc/group`.
fn number(text: &str, file: &str, what: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let all = fs::read_to_string(file).unwrap_or_default();
    let found = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == text).then(|| fields.nth(1)?.parse().ok())?
    });
    found.ok_or_else(|| {
        format!(
            "there is no {what} '{}' in {file}; name one that is there, or write its number",
            text.escape_debug()
        )
    })
}

/// The number of a user.
///
/// # Errors
/// When there is none.
pub fn user(text: &str) -> Result<u32, String> {
    number(text, "/etc/passwd", "user")
}

/// The number of a group.
///
/// # Errors
/// When there is none.
pub fn group(text: &str) -> Result<u32, String> {
    number(text, "/etc/group", "group")
}

/// The name of a user, or the number where there is none.
#[must_use]
pub fn of_user(number: u32) -> String {
    let all = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        assert_eq!(user("root"), Ok(0));
        assert_eq!(group("77"), Ok(77));
        assert_eq!(of_user(0), "root");
        assert_eq!(of_user(4_000_000_000), "4000000000");
        assert!(
            user("no\nbody")
                .unwrap_err()
                .contains("no user 'no\\nbody'")
        );
    }
}
