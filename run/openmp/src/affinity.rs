//! Places of members, and the affinity format.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use margay_core_openmp::environment::Bind;
use margay_core_openmp::format::{self, Field, Interface};
use margay_sys_os::cpu;
use margay_sys_os::process;
use margay_sys_threads::tls_block::{self, natively};

use crate::environment;
use crate::runtime::Runtime;
use crate::team::{Context, Member, Team};
use margay_sys_threads::claims::group_of;

/// Assigns the members of a new team to places (OpenMP 5.1, 2.6.2).
pub(crate) fn assign(parent: &Context, team: &'static Team, clause: u32) {
    if team.runtime.places.all().is_empty() {
        return;
    }
    let (first, count) = parent.member.partition();
    let count = count.max(1);
    let at = parent
        .member
        .place()
        .map_or(0, |place| (place as u32).saturating_sub(first) % count);
    let policy = match (parent.icv.get().bind, clause) {
        (Bind::False, _) => Bind::False,
        (_, 2) => Bind::Primary,
        (_, 3) => Bind::Close,
        (_, 4) => Bind::Spread,
        (own, _) => own,
    };
    let size = team.size;
    team.claims.group_by_place(match policy {
        Bind::False => 0,
        Bind::Primary => 1,
        Bind::True | Bind::Close | Bind::Spread => size.min(count),
    });
    for id in 0..size {
        let member = team.member(id);
        let (place, partition) = match policy {
            Bind::False => (None, (first, count)),
            Bind::Primary => (Some(first + at), (first, count)),
            Bind::True | Bind::Close => {
                let step = if size <= count {
                    id
                } else {
                    group_of(id, size, count)
                };
                (Some(first + (at + step) % count), (first, count))
            }
            Bind::Spread if size <= count => {
                // Sub-partitions: as even as can be, the one with the parent's place for the first
                // member.
                let bounds = |part: u32| {
                    let (width, longer) = (count / size, count % size);
                    part * width + part.min(longer)
                };
                let own = (0..size)
                    .rev()
                    .find(|&part| bounds(part) <= at)
                    .unwrap_or(0);
                let part = (own + id) % size;
                let start = bounds(part);
                let end = if part + 1 == size {
                    count
                } else {
                    bounds(part + 1)
                };
                let place = if id == 0 { at } else { start };
                (Some(first + place), (first + start, end - start))
            }
            Bind::Spread => {
                let place = first + (at + group_of(id, size, count)) % count;
                (Some(place), (place, 1))
            }
        };
        member.assign(place.map(|place| place as usize), partition);
    }
}

/// Assigns an initial thread to the first place, with all places in its partition.
pub(crate) fn assign_initial(member: &'static Member, runtime: &'static Runtime, policy: Bind) {
    let count = runtime.places.all().len() as u32;
    let place = (count > 0 && policy != Bind::False).then_some(0);
    member.assign(place, (0, count));
    bind_to_place_of(member, runtime);
}

/// The members of the regions that this thread forks, outside of which the call must be, run on
/// these places from now on, one after another. Returns whether the call was outside.
#[must_use]
pub fn replace_places(context: &Context, places: Vec<Vec<usize>>) -> bool {
    let is_outside = context.level() == 0;
    if is_outside {
        let runtime = context.runtime();
        runtime.places.replace(places);
        context.change_icv(|icv| icv.bind = Bind::Close);
        assign_initial(context.member, runtime, Bind::Close);
    }
    is_outside
}

/// Binds this thread to the place of the member that begins or continues here, unless it is bound
/// to it. Does nothing for members without places.
#[inline]
pub(crate) fn keep_bound(context: &Context) {
    bind_to_place_of(context.member, context.runtime());
}

#[inline]
fn bind_to_place_of(member: &Member, runtime: &'static Runtime) {
    if let Some(place) = member.place()
        && let Some(processors) = runtime.places.all().get(place)
    {
        bind(processors);
    }
}

thread_local! {
    /// The place that this thread is bound to, by the address of its list; 0 for none.
    static PLACE: Cell<usize> = const { Cell::new(0) };
}

/// Binds this thread to a place, unless it is bound to it; and, if the running member has a TLS
/// block, the thread that the block was made with, which `pthread_self()` names.
fn bind(processors: &'static [usize]) {
    let place = processors.as_ptr().addr();
    let bind = |thread: u32| {
        if PLACE.replace(place) != place {
            // Refused where the process has lost these processors since it started; the thread then
            // runs where it may.
            let _ = cpu::bind_thread(thread, processors);
        }
    };
    if let Some(thread) = tls_block::number() {
        bind(thread);
    }
    natively(|| bind(0));
}

/// The text of a format for the current member, as the library of the interface shows it; without
/// a format, of the one in force.
#[must_use]
pub fn capture(context: &Context, text: Option<&str>, interface: Interface) -> String {
    let in_force = context.runtime().icvs.affinity_format(interface);
    let text = text.filter(|text| !text.is_empty()).unwrap_or(&in_force);
    format::expand(text, |field| match field {
        Field::TeamNumber => context.teams.get().0.to_string(),
        Field::Teams => context.teams.get().1.to_string(),
        Field::Level => context.level().to_string(),
        Field::Thread => context.id.to_string(),
        Field::Threads => context.team.size.to_string(),
        Field::Ancestor => context
            .team
            .parent()
            .map_or_else(|| "-1".to_owned(), |parent| parent.id.to_string()),
        Field::Host => process::host_name(),
        Field::Process => std::process::id().to_string(),
        Field::NativeThread => match interface {
            Interface::Gnu => format!("{:#x}", process::thread_handle()),
            Interface::Llvm => process::thread_id().to_string(),
        },
        Field::Affinity => {
            let form = match interface {
                Interface::Gnu => "-",
                Interface::Llvm => ",",
            };
            environment::ranges(&processors(context), form)
        }
    })
}

/// Shows the line that [`capture`] makes where the library of the interface does: libgomp on
/// standard error, libomp among what the program prints.
pub fn display(context: &Context, text: Option<&str>, interface: Interface) {
    let line = capture(context, text, interface);
    match interface {
        Interface::Gnu => eprintln!("{line}"),
        Interface::Llvm => process::print_line(&line),
    }
}

/// The processors on which the current member may run.
#[must_use]
pub fn processors(context: &Context) -> Vec<usize> {
    let places = context.runtime().places.all();
    context
        .member
        .place()
        .and_then(|place| places.get(place).cloned())
        .unwrap_or_else(cpu::affinity)
}

/// For each forking thread, by the hash of what identifies it, the hash of what fields of a format
/// may show of its last team whose members were shown.
#[derive(Debug, Default)]
pub(crate) struct ShownAffinity(Mutex<BTreeMap<u64, u64>>);

/// Whether the members of a team that `parent` forks are to show their lines: the level, the number
/// of members or a place has changed since they were shown last. Another format is no such change
/// (OpenMP 5.1, 6.13).
pub(crate) fn is_to_be_shown(parent: &Context, team: &'static Team) -> bool {
    let (mut thread, mut what) = (DefaultHasher::new(), DefaultHasher::new());
    parent.initial_address().hash(&mut thread);
    let mut at = Some(parent.member);
    let mut is_other_thread = false;
    while let Some(member) = at {
        // First members are the thread that forked.
        is_other_thread |= member.id != 0;
        if is_other_thread {
            member.id.hash(&mut thread);
        }
        at = member.team().parent();
    }
    parent.level().hash(&mut what);
    team.size.hash(&mut what);
    parent.teams.get().hash(&mut what);
    for id in 0..team.size {
        team.member(id).place().hash(&mut what);
    }
    let shown = &team.runtime.shown_affinity.0;
    let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    shown.insert(thread.finish(), what.finish()) != Some(what.finish())
}
