//! Receives that one call posts and another one completes.

use std::collections::HashMap;

use margay_core_record::Kind;

use super::regions::Regions;
use crate::format::ThreadRecords;

/// Receives that one call of a thread posts and another one completes. Numbers of requests come
/// again, and a call that receives itself may have one by chance.
pub fn requests(of: &ThreadRecords, regions: &Regions) -> HashMap<usize, u64> {
    let mut open: HashMap<u16, (usize, usize)> = HashMap::new();
    let mut found = HashMap::new();
    let (mut call, mut is_own) = (0, false);
    for (index, record) in of.records.iter().enumerate() {
        if !record.kind.is_further() {
            call = index;
            is_own = regions.receives_itself(record.site);
        }
        match record.kind {
            Kind::Post | Kind::Posted => {
                open.insert(record.request, (call, index));
            }
            Kind::Receive | Kind::Received => {
                let Some(&(posted_by, post)) = open.get(&record.request) else {
                    continue;
                };
                let posted = &of.records[post];
                let fits = posted.context == record.context
                    && (posted.peer.is_none() || posted.peer == record.peer)
                    && [record.tag, u32::MAX].contains(&posted.tag);
                let is_same_call = posted_by == call;
                if !fits || is_own && !is_same_call {
                    continue;
                }
                open.remove(&record.request);
                if !is_same_call {
                    let request = found.len() as u64 / 2;
                    found.insert(post, request);
                    found.insert(index, request);
                }
            }
            _ => {}
        }
    }
    found
}
