//! How much each user and group stores and may store: the command `quota`, and lines of `status`.

use std::fmt::Write;
use std::fs;

use margay_fs_stripes::{Amount, Owner, Quota, Store};

use crate::show;

/// The files with the names of users and groups.
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The number of a user, by that or by name.
///
/// # Errors
/// In words, when there is none.
pub fn user(text: &str) -> Result<u32, String> {
    let all = fs::read_to_string(USERS).unwrap_or_default();
    number(&all, text).ok_or_else(|| {
        format!("there is no user '{text}' in {USERS}; name one that is there, or write the number")
    })
}

/// The number of a group, by that or by name.
///
/// # Errors
/// In words, when there is none.
pub fn group(text: &str) -> Result<u32, String> {
    let all = fs::read_to_string(GROUPS).unwrap_or_default();
    number(&all, text).ok_or_else(|| {
        format!(
            "there is no group '{text}' in {GROUPS}; name one that is there, or write the number"
        )
    })
}

fn number(all: &str, text: &str) -> Option<u32> {
    let number = text.parse().ok();
    number.or_else(|| find(all, text, 0, 2)?.parse().ok())
}

/// A field of the line of which another field is `text`.
fn find<'a>(all: &'a str, text: &str, by: usize, field: usize) -> Option<&'a str> {
    let fields = |line: &'a str| line.split(':').collect::<Vec<_>>();
    let mut lines = all.lines().map(fields);
    let line = lines.find(|fields| fields.get(by) == Some(&text))?;
    line.get(field).copied()
}

/// Sets limits of a user or group; those that are empty stay as they are.
///
/// # Errors
/// In words.
pub fn set(store: &Store, owner: &str, space: &str, files: &str) -> Result<(), String> {
    let unknown = || format!("'{owner}' is no number of a user or group");
    let owner = Owner::parse(owner).ok_or_else(unknown)?;
    let mut limit = (store.quotas().iter())
        .find(|quota| quota.owner == owner)
        .map_or_else(Amount::default, |quota| quota.limit);
    limit.bytes = space.parse().unwrap_or(limit.bytes);
    limit.files = files.parse().unwrap_or(limit.files);
    store
        .set_quota(owner, limit)
        .map_err(|fault| format!("the limits of {} cannot be set: {fault}", shown(owner)))
}

/// A user or group, by name where there is one.
fn shown(owner: Owner) -> String {
    let (file, number, before) = match owner {
        Owner::User(number) => (USERS, number, ""),
        Owner::Group(number) => (GROUPS, number, "group "),
    };
    let all = fs::read_to_string(file).unwrap_or_default();
    let number = number.to_string();
    let name = find(&all, &number, 2, 0).unwrap_or(&number);
    format!("{before}{name}")
}

/// A line for each user and group: those with limits, or all.
pub fn lines(store: &Store, are_all: bool) -> String {
    let mut text = String::new();
    for Quota { owner, limit, used } in store.quotas() {
        if !are_all && limit == Amount::default() {
            continue;
        }
        let name = shown(owner);
        let bytes = match limit.bytes {
            0 => String::new(),
            most => format!(" of {}", show::bytes(most)),
        };
        let files = match limit.files {
            0 => String::new(),
            most => format!(" of {most}"),
        };
        // A string takes everything.
        let _ = writeln!(
            text,
            "  {:13} {name}: {}{bytes}, {}{files} files",
            if limit == Amount::default() {
                "no quota"
            } else {
                "quota"
            },
            show::bytes(used.bytes),
            used.files
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let all = "root:x:0:0:root:/:/bin/sh\nbroken\na:x:1000:1:::\n";
        assert_eq!(find(all, "a", 0, 2), Some("1000"));
        assert_eq!(find(all, "1000", 2, 0), Some("a"));
        assert_eq!(find(all, "x", 0, 2), None);
        assert_eq!(user("4000000000"), Ok(4_000_000_000));
        assert!(user("no:such").is_err() && user("-1").is_err());
    }
}
