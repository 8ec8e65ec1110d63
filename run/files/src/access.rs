//! Reading and writing: what the functions have in common, whatever they name as the place and
//! however they end.

use std::sync::{Arc, Mutex};

use margay_run_engine::{Port, ReqId, Script};

use super::datarep::{Elements, Finish};
use super::hints::Hints;
use super::independent::Access;
use super::twophase::{self, Io, Tags};
use super::{File, Files};
use margay_run_mpi::active::Deferred;
use margay_run_mpi::constants::mode::*;
use margay_run_mpi::error::*;
use margay_run_mpi::{Status, fail};

/// Where in the view an access begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an offset in etypes.
    At(i64),
    /// At the individual file pointer, which moves.
    Individual,
    /// At the shared file pointer, which moves.
    Shared,
    /// At the shared file pointer, the ranks one after the other; collective only.
    Ordered,
}

/// What a call names.
pub struct Call {
    /// The handle of the file.
    pub file: u32,
    /// Where.
    pub place: Place,
    /// The elements in memory.
    pub elements: Elements,
    /// The handle of their datatype, for data representations of the program.
    pub datatype: u32,
    /// Whether they are written.
    pub write: bool,
}

/// The result of an access that goes on by itself: bytes in the file's representation.
type Outcome = Arc<Mutex<Option<Result<u64>>>>;

/// An access under way.
pub(crate) struct Pending {
    id: ReqId,
    outcome: Outcome,
    finish: Mutex<Option<Finish>>,
    /// Bytes that it is about, and those of an etype.
    asked: u64,
    unit: u64,
}

impl Pending {
    /// Etypes that were not there, after its request has ended.
    fn missing(&self) -> i64 {
        match *self.outcome.lock().expect("no panic under this lock") {
            Some(Ok(bytes)) => (self.asked - bytes).div_ceil(self.unit) as i64,
            _ => 0,
        }
    }
}

impl Deferred for Pending {
    fn id(&self) -> ReqId {
        self.id
    }

    /// Values are converted here, outside of the engine.
    fn take(&self) -> (Status, Option<Error>) {
        let outcome = self
            .outcome
            .lock()
            .expect("no panic under this lock")
            .take();
        let finish = self.finish.lock().expect("no panic under this lock").take();
        let result = match (outcome, finish) {
            (Some(Ok(bytes)), Some(finish)) => finish.run(bytes),
            (Some(Err(error)), _) => Err(error),
            _ => Ok(0),
        };
        match result {
            Ok(bytes) => (status(bytes), None),
            Err(error) => (Status::EMPTY, Some(error)),
        }
    }
}

/// A split collective operation under way.
pub(crate) struct Split {
    /// The name of the function that began it, without `_begin`.
    pub name: &'static str,
    pending: Pending,
}

fn status(bytes: u64) -> Status {
    Status {
        bytes,
        ..Status::EMPTY
    }
}

/// An access that is ready to begin.
struct Ready {
    hints: Arc<Hints>,
    atomic: bool,
    access: Access,
    finish: Finish,
}

impl File {
    fn check_access(&self, place: Place, write: bool) -> Result<()> {
        if write {
            self.may_write()?;
        } else if self.amode & MPI_MODE_WRONLY != 0 {
            fail!(
                MPI_ERR_ACCESS,
                "{} was opened with MPI_MODE_WRONLY; open it with MPI_MODE_RDWR or MPI_MODE_RDONLY to read",
                self.describe()
            );
        }
        match place {
            Place::Shared | Place::Ordered => Ok(()),
            Place::At(_) => self.not_sequential("offsets"),
            Place::Individual => self.not_sequential("individual file pointer"),
        }
    }

    /// Does an access; an atomic one with other threads of this process kept away.
    pub(super) fn perform(&self, access: &Access, hints: &Hints, atomic: bool) -> Result<u64> {
        let alone = atomic.then(|| self.alone.lock().expect("no panic under this lock"));
        let result = access.perform(&*self.storage, hints, atomic);
        drop(alone);
        result
    }
}

impl Files<'_> {
    /// Checks a call and moves the file pointer that it uses.
    fn ready(&self, file: &File, call: &Call) -> Result<Ready> {
        file.check_access(call.place, call.write)?;
        let (view, hints, atomic) = {
            let state = file.state();
            (state.view.clone(), state.hints.clone(), state.atomic)
        };
        let prepared = view
            .rep
            .prepare(call.elements.clone(), call.datatype, call.write)?;
        let bytes = prepared.data.size();
        if !bytes.is_multiple_of(view.unit()) {
            fail!(
                MPI_ERR_ARG,
                "the access has {bytes} bytes, which is not a multiple of the etype's {}; access complete etypes",
                view.unit()
            );
        }
        let etypes = (bytes / view.unit()) as i64;
        let start = match call.place {
            Place::At(offset) => offset,
            Place::Individual => file.state().position,
            Place::Shared => file.pointer.advance(self.mpi.rank(), etypes),
            // Where it is found out together with the others.
            Place::Ordered => 0,
        };
        let access = Access {
            start: view.packed(start)?,
            data: prepared.data,
            write: call.write,
            view,
        };
        access.extents()?;
        if call.place == Place::Individual {
            file.state().position = start + etypes;
        }
        Ok(Ready {
            hints,
            atomic,
            access,
            finish: prepared.finish,
        })
    }

    /// Blocking access by this rank alone.
    ///
    /// # Errors
    /// When an argument is invalid or the file cannot be accessed.
    pub fn access(&self, call: &Call) -> Result<Status> {
        let file = self.file(call.file)?;
        let ready = self.ready(&file, call)?;
        let bytes = file.perform(&ready.access, &ready.hints, ready.atomic)?;
        let asked = ready.access.data.size();
        if call.place == Place::Individual && bytes < asked {
            // The pointer stands behind what was there.
            let missing = (asked - bytes).div_ceil(ready.access.view.unit());
            file.state().position -= missing as i64;
        }
        Ok(status(ready.finish.run(bytes)?))
    }

    /// Nonblocking access by this rank alone: a request. The system copies at once what it has in
    /// memory.
    ///
    /// # Errors
    /// When an argument is invalid or the file cannot be accessed.
    pub fn iaccess(&self, call: &Call) -> Result<u32> {
        let file = self.file(call.file)?;
        let ready = self.ready(&file, call)?;
        let bytes = file.perform(&ready.access, &ready.hints, ready.atomic)?;
        let status = status(ready.finish.run(bytes)?);
        self.mpi.request_ended(file.handle(), status)
    }

    /// Blocking collective access.
    ///
    /// # Errors
    /// When an argument is invalid or the file cannot be accessed, here or by an aggregator.
    pub fn access_all(&self, call: &Call) -> Result<Status> {
        let file = self.file(call.file)?;
        file.no_split()?;
        let pending = self.start(&file, call);
        self.mpi.rank().wait(pending.id);
        let missing = pending.missing();
        if call.place == Place::Individual && missing > 0 {
            file.state().position -= missing;
        }
        let (status, error) = pending.take();
        error.map_or(Ok(status), Err)
    }

    /// Nonblocking collective access: a request.
    ///
    /// # Errors
    /// When the handle is invalid or a split operation is under way; the request reports all other
    /// errors.
    pub fn iaccess_all(&self, call: &Call) -> Result<u32> {
        let file = self.file(call.file)?;
        file.no_split()?;
        let pending = self.start(&file, call);
        self.mpi.request_deferred(file.handle(), Arc::new(pending))
    }

    /// Begins a split collective access; `name` is the function's without `_begin`.
    ///
    /// # Errors
    /// When the handle is invalid or a split operation is under way; the end reports all other
    /// errors.
    pub fn begin(&self, call: &Call, name: &'static str) -> Result<()> {
        let file = self.file(call.file)?;
        file.no_split()?;
        let pending = self.start(&file, call);
        file.state().split = Some(Split { name, pending });
        Ok(())
    }

    /// Ends a split collective access.
    ///
    /// # Errors
    /// When it was not begun, or what went wrong with it.
    pub fn end(&self, file: u32, name: &'static str) -> Result<Status> {
        let file = self.file(file)?;
        let split = {
            let mut state = file.state();
            match state.split.take() {
                Some(split) if split.name == name => split,
                other => {
                    let begun = other.as_ref().map(|split| split.name);
                    state.split = other;
                    drop(state);
                    match begun {
                        Some(begun) => fail!(
                            MPI_ERR_IO,
                            "{begun}_begin is under way on {}; call {begun}_end",
                            file.describe()
                        ),
                        None => fail!(
                            MPI_ERR_IO,
                            "no split operation is under way on {}; call {name}_begin first",
                            file.describe()
                        ),
                    }
                }
            }
        };
        self.mpi.rank().wait(split.pending.id);
        let (status, error) = split.pending.take();
        error.map_or(Ok(status), Err)
    }

    /// Begins a collective access. A rank whose arguments are wrong takes part too, so that the
    /// others do not wait for it.
    fn start(&self, file: &Arc<File>, call: &Call) -> Pending {
        let ready = self.ready(file, call);
        let tags = Tags::next(&file.comm);
        let outcome = Outcome::default();
        let place = outcome.clone();
        let (port, io) = (Port::default(), file.io(self.mpi));
        let (mut finish, mut asked, mut unit) = (None, 0, 1);
        let (access, hints, atomic) = match ready {
            Ok(ready) => {
                finish = Some(ready.finish);
                asked = ready.access.data.size();
                unit = ready.access.view.unit();
                (Ok(ready.access), ready.hints, ready.atomic)
            }
            Err(error) => {
                let state = file.state();
                (Err(error), state.hints.clone(), state.atomic)
            }
        };
        let is_ordered = call.place == Place::Ordered;
        let body = {
            let port = port.clone();
            async move {
                let result = if is_ordered {
                    ordered(io, port, tags, access, hints, atomic).await
                } else {
                    twophase::collective(io, port, tags, access, hints, atomic).await
                };
                *place.lock().expect("no panic under this lock") = Some(result);
            }
        };
        let script = Script::new(port, file.comm.point_to_point(), body);
        Pending {
            id: self
                .mpi
                .rank()
                .call(|engine| engine.start_task(Box::new(script))),
            outcome,
            finish: Mutex::new(finish),
            asked,
            unit,
        }
    }
}

/// An access in the order of ranks at the shared file pointer, as a script. Returns the bytes that
/// were read or written.
async fn ordered(
    io: Io,
    port: Port,
    tags: Tags,
    access: Result<Access>,
    hints: Arc<Hints>,
    atomic: bool,
) -> Result<u64> {
    let etypes = access
        .as_ref()
        .map_or(0, |a| (a.data.size() / a.view.unit()) as i64);
    let all = io.gather(&port, tags.collectives[0], [etypes]).await;
    let total: i64 = all.iter().map(|words| words[0]).sum();
    let base = io.file.pointer.advance_home(total);
    let bases = io.gather(&port, tags.collectives[1], [base]).await;
    let before: i64 = all[..io.file.comm.rank as usize].iter().map(|w| w[0]).sum();
    let mut access = access?;
    access.start = access.view.packed(bases[0][0] + before)?;
    io.file.perform(&access, &hints, atomic)
}
