//! Teams as debuggers and `margay threads` see them.

use std::ptr;

use margay_sys_threads::inspect::{MemberRecord, TeamRecord, add_team};

use super::{Context, Member, Team};

/// Enters a team, when it is made.
pub(super) fn enter(team: &'static Team) {
    let records = team.members.iter().map(|member| member.record.address());
    let records: &'static [usize] = Vec::leak(records.collect());
    let (first_class, class_bytes, classes) = team.claims.places();
    add_team(TeamRecord {
        size: team.size,
        classes,
        site_at: ptr::from_ref(team.nesting.site).addr(),
        level_at: ptr::from_ref(&team.nesting.level).addr(),
        parent_at: team.nesting.parent.address(),
        members: team.members.as_ptr().addr(),
        member_bytes: size_of::<Member>(),
        records: records.as_ptr().addr(),
        first_class,
        class_bytes,
        opened_at: team.length.opened_at(),
        ..TeamRecord::default()
    });
}

impl Context {
    /// The call in which this member is about to wait returns to this address of the program.
    pub(crate) fn calls_from(&self, place: usize) {
        self.member.record().calls_from(place);
    }
}

impl Member {
    /// What it is doing, as it is seen from outside.
    #[inline]
    pub(super) fn record(&self) -> &'static MemberRecord {
        self.record
    }
}
