//! Info objects: ordered lists of keys and values.

use crate::constants::info::{MPI_INFO_ENV, MPI_INFO_NULL};
use crate::constants::limit::{MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL};
use crate::error::*;
use crate::{Mpi, fail};

/// Keys and values in the order in which the keys were first set.
pub type Info = Vec<(String, String)>;

impl Mpi {
    /// `MPI_Info_create`, and duplication: a new info object with these entries.
    ///
    /// # Errors
    /// When there are too many objects.
    pub fn info_create(&self, entries: Info) -> Result<u32> {
        let handle = self.objects().infos.insert(entries);
        handle.ok_or_else(|| Error::new(MPI_ERR_INFO, "a million info objects exist; free some"))
    }

    /// Returns the entries of an info object; none of `MPI_INFO_NULL`.
    ///
    /// # Errors
    /// When the handle is not of an info object.
    pub fn info(&self, handle: u32) -> Result<Info> {
        match handle {
            MPI_INFO_NULL => Ok(Info::new()),
            MPI_INFO_ENV => Ok(self.predefined.environment.clone()),
            _ => match self.objects().infos.get(handle) {
                Some(info) => Ok(info.clone()),
                None => Err(unknown(handle)),
            },
        }
    }

    /// Refuses what is neither an info object nor `MPI_INFO_NULL`.
    ///
    /// # Errors
    /// When the handle is not of an info object.
    pub fn check_info(&self, handle: u32) -> Result<()> {
        if matches!(handle, MPI_INFO_NULL | MPI_INFO_ENV)
            || self.objects().infos.get(handle).is_some()
        {
            return Ok(());
        }
        Err(unknown(handle))
    }

    /// `MPI_Info_free`.
    ///
    /// # Errors
    /// When the handle is not of an info object that the program created.
    pub fn info_free(&self, handle: u32) -> Result<()> {
        match self.objects().infos.remove(handle) {
            Some(_) => Ok(()),
            None => Err(unknown(handle)),
        }
    }

    /// `MPI_Info_set`.
    ///
    /// # Errors
    /// When the handle is not of an info object that may be changed, or a string is empty or too
    /// long.
    pub fn info_set(&self, handle: u32, key: &str, value: &str) -> Result<()> {
        check_key(key)?;
        if value.len() >= MPI_MAX_INFO_VAL {
            fail!(
                MPI_ERR_INFO_VALUE,
                "the value of key '{key}' has {} bytes; {} are allowed",
                value.len(),
                MPI_MAX_INFO_VAL - 1
            );
        }
        let mut objects = self.objects();
        let Some(info) = objects.infos.get_mut(handle) else {
            return Err(unknown(handle));
        };
        match info.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value.into(),
            None => info.push((key.into(), value.into())),
        }
        Ok(())
    }

    /// `MPI_Info_delete`.
    ///
    /// # Errors
    /// When the handle is not of an info object that may be changed, or it has no such key.
    pub fn info_delete(&self, handle: u32, key: &str) -> Result<()> {
        check_key(key)?;
        let mut objects = self.objects();
        let Some(info) = objects.infos.get_mut(handle) else {
            return Err(unknown(handle));
        };
        match info.iter().position(|(k, _)| k == key) {
            Some(i) => {
                info.remove(i);
                Ok(())
            }
            None => fail!(MPI_ERR_INFO_NOKEY, "there is no key '{key}'"),
        }
    }

    /// Returns the value of a key, if it is set.
    ///
    /// # Errors
    /// When the handle is not of an info object or the key is empty or too long.
    pub fn info_get(&self, handle: u32, key: &str) -> Result<Option<String>> {
        check_key(key)?;
        if handle == MPI_INFO_NULL {
            return Err(unknown(handle));
        }
        let info = self.info(handle)?;
        Ok(info.into_iter().find(|(k, _)| k == key).map(|(_, v)| v))
    }
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() {
        fail!(MPI_ERR_INFO_KEY, "the key is empty");
    }
    if key.len() >= MPI_MAX_INFO_KEY {
        fail!(
            MPI_ERR_INFO_KEY,
            "the key has {} bytes; {} are allowed",
            key.len(),
            MPI_MAX_INFO_KEY - 1
        );
    }
    Ok(())
}

#[cold]
fn unknown(handle: u32) -> Error {
    let text = match handle {
        MPI_INFO_NULL => "the info object is MPI_INFO_NULL".to_string(),
        MPI_INFO_ENV => "MPI_INFO_ENV cannot be changed".to_string(),
        _ => format!("{handle:#x} is not an info object; was it freed?"),
    };
    Error::new(MPI_ERR_INFO, text)
}
