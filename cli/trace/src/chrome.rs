//! The trace as JSON in Chrome's format, for chrome://tracing, Perfetto and Speedscope.

use std::io::{self, Write};

use margay_core_record::Kind;

use crate::analyse::Analysis;
use crate::format::{Trace, duration, name_of};
use crate::json::quote;

pub fn write(to: &mut impl Write, trace: &Trace, analysis: &Analysis) -> io::Result<()> {
    let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    let mut separator = "";
    for of in trace.threads.iter().chain(&trace.openmp) {
        text += &format!(
            "{separator}{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}}",
            of.rank
        );
        separator = ",\n";
        if let Some(host) = trace.hosts.get(&of.rank) {
            text += ",\n{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":";
            text += &format!("{},\"args\":{{\"labels\":", of.rank);
            quote(&mut text, host);
            text += "}}";
        }
        for record in &of.records {
            if record.kind.is_further() {
                continue;
            }
            let site = trace.site(record.site);
            let name = match site.call.as_str() {
                "" => name_of(record.kind),
                call => call,
            };
            text += ",\n{\"ph\":\"X\",\"name\":";
            quote(&mut text, name);
            text += &format!(
                ",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{",
                name_of(record.kind),
                of.rank,
                of.thread,
                microseconds(record.start),
                microseconds(duration(trace, record))
            );
            text += "\"at\":";
            quote(&mut text, &site.place());
            if let Some(peer) = record.peer {
                text += &format!(",\"rank\":{peer}");
            }
            if !matches!(record.kind, Kind::Call | Kind::Threads) {
                text += &format!(",\"tag\":{},\"bytes\":{}", record.tag as i32, record.bytes);
            }
            text += "}}";
            if text.len() > 1 << 20 {
                to.write_all(text.as_bytes())?;
                text.clear();
            }
        }
    }
    for (number, message) in analysis.messages.iter().enumerate() {
        let ends = [
            ("s", message.from, message.sent_ns, ""),
            ("f", message.to, message.received_ns, ",\"bp\":\"e\""),
        ];
        for (phase, at, ns, more) in ends {
            let thread = &trace.threads[at.thread as usize];
            text += &format!(
                "{separator}{{\"ph\":\"{phase}\",\"name\":\"message\",\"cat\":\"message\",\"id\":{number},\"pid\":{},\"tid\":{},\"ts\":{}{more}}}",
                thread.rank,
                thread.thread,
                microseconds(ns)
            );
            separator = ",\n";
        }
    }
    text += "\n]}\n";
    to.write_all(text.as_bytes())
}

fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::analyse;
    use crate::format::tests::small;

    #[test]
    fn calls_and_messages_are_events() {
        let trace = small();
        let mut bytes = Vec::new();
        write(&mut bytes, &trace, &analyse(&trace)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let count = |what: &str| text.matches(what).count();
        assert_eq!(
            [
                count("\"ph\":\"X\""),
                count("\"ph\":\"s\""),
                count("\"ph\":\"f\"")
            ],
            [4, 1, 1]
        );
        assert!(text.contains("\"name\":\"MPI_Recv\",\"cat\":\"receive\",\"pid\":1,\"tid\":11,\"ts\":1000.000,\"dur\":4002.000"));
        assert_eq!(count("{"), count("}"));
    }
}
