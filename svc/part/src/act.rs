//! What is done to the table of partitions: by this user's command, or in the service for another
//! one's. It comes as words: an action, a partition, then keys and values or flags.

use margay_core_partitions::{
    Caller, Changes, MOST_PRIORITY, Mode, Right, Scheduling, Table, Wanted, path,
};

use crate::names;

/// A change of partitions.
#[derive(Debug)]
pub enum Change {
    Make {
        name: String,
        wanted: Wanted,
        changes: Changes,
    },
    Remove {
        name: String,
        recursive: bool,
        force: bool,
    },
    Alter {
        name: String,
        new_name: Option<String>,
        nodes: Option<Wanted>,
        changes: Changes,
    },
}

impl Change {
    /// Reads words; none when they are no change at all.
    ///
    /// # Errors
    /// Which word is wrong.
    pub fn parse(words: &[&str]) -> Result<Option<Change>, String> {
        let [action, name, rest @ ..] = words else {
            return Ok(None);
        };
        let name = (*name).to_owned();
        let has = |flag: &str| rest.contains(&flag);
        Ok(Some(match *action {
            "remove" => Change::Remove {
                name,
                recursive: has("recursive"),
                force: has("force"),
            },
            "make" => {
                let mut asked = Asked::parse(rest)?;
                Change::Make {
                    name,
                    wanted: asked.wanted(),
                    changes: asked.changes,
                }
            }
            "change" => {
                let asked = Asked::parse(rest)?;
                Change::Alter {
                    name,
                    new_name: asked.new_name,
                    nodes: asked.wanted,
                    changes: asked.changes,
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Changes the table. `running` are the partitions in which applications run.
    ///
    /// # Errors
    /// Which partition, why not, and what to do.
    pub fn apply(&self, table: &mut Table, who: &Caller, running: &[String]) -> Result<(), String> {
        let done = match self {
            Change::Make {
                name,
                wanted,
                changes,
            } => table.make(who, name, wanted, changes).map(drop),
            Change::Remove {
                recursive,
                force,
                name,
            } => {
                let path = path(name).map_err(|refused| refused.to_string())?;
                let is_used = running.iter().any(|own| Table::is_within(own, &path));
                if is_used && !force && table.find(who, &path, Right::Read).is_ok() {
                    return Err(format!(
                        "applications run in the partition '{path}' (pspart {path} lists them); wait for their end, \
                         or remove it with -f, and they go on"
                    ));
                }
                table.remove(who, name, *recursive)
            }
            Change::Alter {
                new_name,
                nodes,
                changes,
                name,
            } => table
                .change(who, name, changes)
                .and_then(|()| match nodes {
                    Some(nodes) => table.assign(who, name, nodes),
                    None => Ok(()),
                })
                .and_then(|()| match new_name {
                    Some(new) => table.rename(who, name, new).map(drop),
                    None => Ok(()),
                }),
        };
        done.map_err(|refused| refused.to_string())
    }
}

#[derive(Default)]
struct Asked {
    wanted: Option<Wanted>,
    is_relaxed: bool,
    new_name: Option<String>,
    changes: Changes,
}

impl Asked {
    fn parse(words: &[&str]) -> Result<Asked, String> {
        let mut asked = Asked::default();
        for pair in words.chunks(2) {
            let [key, value] = *pair else {
                return Err(format!("'{}' has no value", pair[0].escape_debug()));
            };
            asked.set(key, value)?;
        }
        Ok(asked)
    }

    /// The nodes of a new partition: all of its parent where none are named.
    fn wanted(&mut self) -> Wanted {
        match (self.wanted.take(), self.is_relaxed) {
            (None, _) => Wanted::All,
            (Some(wanted), true) => Wanted::Relaxed(Box::new(wanted)),
            (Some(wanted), false) => wanted,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = || {
            let value = value.escape_debug();
            format!("'{value}' cannot be the value of '{}'", key.escape_debug())
        };
        let changes = &mut self.changes;
        match key {
            "size" => self.wanted = Some(Wanted::size(value).ok_or_else(wrong)?),
            "hosts" => self.wanted = Some(Wanted::hosts(value).ok_or_else(wrong)?),
            "nodes" => self.wanted = Some(Wanted::list(value).ok_or_else(wrong)?),
            "relaxed" if value == "yes" => self.is_relaxed = true,
            "name" => self.new_name = Some(value.to_owned()),
            "mode" => changes.mode = Some(Mode::parse(value).ok_or_else(wrong)?),
            "scheduling" => {
                changes.scheduling = Some(Scheduling::parse(value).ok_or_else(wrong)?);
            }
            "epl" => {
                let limit = value.parse().ok().filter(|limit| *limit <= MOST_PRIORITY);
                changes.priority_limit = Some(limit.ok_or_else(wrong)?);
            }
            "owner" => {
                let (owner, group) = value.split_once(['.', ':']).unwrap_or((value, ""));
                if !owner.is_empty() {
                    changes.owner = Some(names::user(owner)?);
                }
                if !group.is_empty() {
                    changes.group = Some(names::group(group)?);
                }
            }
            "group" => changes.group = Some(names::group(value)?),
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_change_are_refused() {
        assert!(Change::parse(&["list", "a"]).unwrap().is_none());
        assert!(Change::parse(&["make"]).unwrap().is_none());
        for words in [
            &["make", "a", "size"][..],
            &["make", "a", "size", "0"],
            &["make", "a", "epl", "11"],
            &["change", "a", "mode", "9"],
            &["change", "a", "x\n", "9"],
            &["change", "a", "owner", "no such user"],
        ] {
            Change::parse(words).unwrap_err();
        }
    }
}
