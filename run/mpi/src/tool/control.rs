//! Control variables.

use std::sync::atomic::Ordering;

use super::table::{CONTROLS, Control, Setting};
use super::{Result, Tools, entry};
use crate::constants::error_class::*;
use crate::constants::tools::*;

/// The value of a variable, in its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `int`
    Int(i32),
    /// `unsigned long long`
    Number(u64),
    /// `double`
    Real(f64),
}

impl Value {
    /// Returns its bytes, as a C program sees them.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Value::Int(v) => v.to_ne_bytes().to_vec(),
            Value::Number(v) => v.to_ne_bytes().to_vec(),
            Value::Real(v) => v.to_ne_bytes().to_vec(),
        }
    }
}

/// Returns a number with an optional suffix k, m or g for powers of 1024.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

impl Tools {
    /// Sets what the environment says; returns sentences about what cannot be.
    pub(super) fn read_environment(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Vec<String> {
        let mut complaints = Vec::new();
        for control in CONTROLS {
            let Some(name) = control.environment else {
                continue;
            };
            let Some(text) = environment(name).filter(|text| !text.is_empty()) else {
                continue;
            };
            let done = parse(&text).map(|value| self.set(control, value));
            if done != Some(Ok(())) {
                let (least, most) = bounds(control);
                complaints.push(format!(
                    "{name} is '{text}', which is not a number from {least} to {most}; it is not heeded"
                ));
            }
        }
        complaints
    }

    /// `MPI_T_cvar_handle_alloc`
    ///
    /// # Errors
    /// When there is no such variable.
    pub fn control_open(&self, index: i32) -> Result<u64> {
        let mut state = self.initialized()?;
        entry(CONTROLS, index)?;
        let handle = state.new_handle();
        state.controls.insert(handle, index as usize);
        Ok(handle)
    }

    /// `MPI_T_cvar_handle_free`
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn control_close(&self, handle: u64) -> Result<()> {
        let removed = self.initialized()?.controls.remove(&handle);
        removed.map(|_| ()).ok_or(MPI_T_ERR_INVALID_HANDLE)
    }

    /// Returns the variable of a handle.
    ///
    /// # Errors
    /// When the handle is invalid.
    pub fn control(&self, handle: u64) -> Result<&'static Control> {
        let found = self.initialized()?.controls.get(&handle).copied();
        Ok(&CONTROLS[found.ok_or(MPI_T_ERR_INVALID_HANDLE)?])
    }

    /// Returns the value of a control variable.
    #[must_use]
    pub fn control_value(&self, control: &Control) -> Value {
        let number = match control.setting {
            Setting::Tunable(tunable, ..) => self.monitor.tuning.get(tunable),
            Setting::ProgressThread => u64::from(self.wants_progress_thread()),
            Setting::EventRoom => self.monitor.events.room(),
            Setting::Fact(fact) => fact(&self.monitor),
        };
        match control.enumeration {
            Some(_) => Value::Int(number as i32),
            None => Value::Number(number),
        }
    }

    /// Sets a control variable for the program.
    ///
    /// # Errors
    /// When it cannot be set, at all or now, or not to this value.
    pub fn control_set(&self, control: &Control, value: Value) -> Result<()> {
        if matches!(control.scope, MPI_T_SCOPE_CONSTANT | MPI_T_SCOPE_READONLY) {
            return Err(MPI_T_ERR_CVAR_SET_NEVER);
        }
        let is_late = matches!(control.setting, Setting::ProgressThread);
        if is_late && self.running.load(Ordering::Relaxed) {
            return Err(MPI_T_ERR_CVAR_SET_NOT_NOW);
        }
        match value {
            Value::Number(number) => self.set(control, number),
            Value::Int(number) => self.set(
                control,
                u64::try_from(number).map_err(|_| MPI_T_ERR_INVALID)?,
            ),
            Value::Real(_) => Err(MPI_T_ERR_INVALID),
        }
    }

    fn set(&self, control: &Control, value: u64) -> Result<()> {
        let (least, most) = bounds(control);
        if !(least..=most).contains(&value) {
            return Err(MPI_T_ERR_INVALID);
        }
        match control.setting {
            Setting::Tunable(tunable, ..) => self.monitor.tuning.set(tunable, value),
            Setting::ProgressThread => self.progress_thread.store(value != 0, Ordering::Relaxed),
            Setting::EventRoom => self.monitor.events.set_room(value),
            Setting::Fact(_) => return Err(MPI_T_ERR_CVAR_SET_NEVER),
        }
        Ok(())
    }
}

/// Smallest and largest value.
fn bounds(control: &Control) -> (u64, u64) {
    match control.setting {
        Setting::Tunable(_, least, most) => (least, most),
        Setting::ProgressThread => (0, 1),
        Setting::EventRoom => (0, 1 << 24),
        Setting::Fact(_) => (0, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::index_of;
    use margay_run_engine::SystemClock;
    use std::sync::Arc;

    #[test]
    fn numbers_have_suffixes() {
        assert_eq!(parse("17"), Some(17));
        assert_eq!(parse(" 64k "), Some(65536));
        assert_eq!(parse("1M"), Some(1 << 20));
        assert_eq!(parse("2g"), Some(2 << 30));
        assert_eq!(parse("k"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("-1"), None);
        assert_eq!(parse("99999999999999999999g"), None);
    }

    #[test]
    fn the_environment_sets_variables_and_mistakes_are_reported() {
        let tools = Tools::with_environment(Arc::new(SystemClock), |name| {
            let value = match name {
                "MARGAY_EAGER_LIMIT" => "8k",
                "MARGAY_WAIT_SPINS" => "many",
                "MARGAY_PROGRESS_THREAD" => "2",
                _ => return None,
            };
            Some(value.to_string())
        });
        let value = |name: &str| {
            let index = index_of(CONTROLS, |c| c.name == name).expect("it is there");
            tools.control_value(&CONTROLS[index as usize])
        };
        assert_eq!(value("margay_eager_limit"), Value::Number(8192));
        assert_eq!(value("margay_progress_thread"), Value::Int(0));
        assert_eq!(tools.complaints().len(), 2, "{:?}", tools.complaints());
    }
}
