//! The job that parsed options describe.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use margay_core_partitions::{Table, path};
use margay_core_registry::network;
use margay_job_launch::machine;
use margay_job_launch::plan::{Binding, Hosts, Inherit, Job, Program, TimeLimit};
use margay_job_launch::turns::{Nodes, Turns, Wanted};
use margay_sys_os::cpu;

use crate::hosts::{HostList, hosts};
use crate::load::by_load;
use crate::mapping::MapBy;
use crate::options::{PlacementOptions, RunOptions};
use crate::trace;
use crate::values::{CoreList, Names, NodeList, OutputOption, seconds};

/// Makes the job of the parsed segments, one for each program. In a partition it waits for the
/// job's turn there.
///
/// # Errors
/// When a program is missing, options contradict each other, or the partition cannot be used.
pub fn job(name: &str, mut segments: Vec<RunOptions>) -> Result<(Job, Option<Turns>), String> {
    let turns = in_partition(name, &mut segments)?;
    Ok((of_segments(name, segments)?, turns))
}

/// Asks for the nodes of the partition that the programs name, and has them use its cores.
fn in_partition(name: &str, segments: &mut [RunOptions]) -> Result<Option<Turns>, String> {
    let named = (segments.iter()).filter_map(|own| own.placement.partition.as_deref());
    let named: Vec<String> = named.map(str::to_owned).collect();
    let Some(partition) = named.first() else {
        return Ok(None);
    };
    if let Some(other) = named.iter().find(|other| *other != partition) {
        return Err(format!(
            "-pn {partition} and -pn {other}: a job runs in one partition; name one"
        ));
    }
    let elsewhere = |own: &RunOptions| own.host.is_some() || own.host_file.is_some();
    if segments.iter().any(elsewhere) {
        return Err(format!(
            "-pn {partition}: a partition says on which cores or hosts a job runs; leave it or the hosts out"
        ));
    }
    let is_alone = segments.len() == 1;
    let ranks = segments.first().and_then(|own| own.ranks);
    // `NAME:2` is two of its nodes.
    let numbered = partition.rsplit_once(':');
    let numbered = numbered.and_then(|(name, nodes)| Some((name, nodes.parse().ok()?)));
    let (partition, nodes) = match numbered {
        Some((name, nodes)) if nodes > 0 => (name, Some(nodes)),
        _ => (&**partition, None),
    };
    // There the number of ranks is what is looked at.
    let is_for_commands = path(partition).is_ok_and(|path| Table::is_for_commands(&path));
    let nodes = nodes.filter(|_| !is_for_commands);
    let words = segments.iter().flat_map(|own| &own.program);
    let words: Vec<String> = (words.take(20))
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let (turns, nodes) = Turns::begin(&Wanted {
        name: partition,
        ranks: nodes.or(ranks.filter(|_| is_alone)),
        is_exact: nodes.is_some(),
        pool: None,
        priority: segments.iter().find_map(|own| own.placement.priority),
        command: &words.join(" "),
        launcher: name,
    })?;
    let cores = match nodes {
        Nodes::Cores(cores) => cores,
        Nodes::Hosts(list) => {
            let list = hosts(&list)?;
            for own in segments {
                own.host = Some(list.clone());
            }
            return Ok(Some(turns));
        }
    };
    for own in segments {
        if is_alone {
            own.ranks = own.ranks.or(u32::try_from(cores.len()).ok());
        }
        own.placement.cpu_set = Some(CoreList(cores.clone()));
    }
    Ok(Some(turns))
}

fn of_segments(name: &str, segments: Vec<RunOptions>) -> Result<Job, String> {
    let mut job = Job::new(name);
    let everybody: Vec<(OsString, OsString)> = segments
        .iter()
        .flat_map(|s| pairs(&s.environment.genv))
        .collect();
    let inherited = inherited_by_all(&segments);
    let network = segments.iter().find_map(|s| s.network.clone());
    let mut hosts = Named::of(&segments);
    for mut options in segments {
        on_hosts(&mut job, &mut hosts, &mut options)?;
        let cpu_set = options.placement.cpu_set.as_ref();
        let ranks = ranks(&options, cpu_set.map(|list| list.0.as_slice()))?;
        let mut words = options.program.into_iter();
        let command = words.next().ok_or_else(|| {
            format!("there is no program to run; write: {name} -n 4 ./a.out (see {name} --help)")
        })?;
        let mut environment = everybody.clone();
        environment.extend(pairs(&options.environment.env));
        if let Some(network) = &network {
            environment.push((network::VARIABLE.into(), network.into()));
        }
        let inherit = match (options.environment.envlist, options.environment.envnone) {
            (Some(Names(names)), _) => Inherit::Only(names),
            (None, true) => Inherit::Only(Vec::new()),
            (None, false) => inherited.clone(),
        };
        for export in options.environment.export {
            let mut parts = export.as_bytes().splitn(2, |&b| b == b'=');
            let own = |bytes| OsStr::from_bytes(bytes).to_owned();
            let name = own(parts.next().unwrap_or_default());
            // Without a value it is passed on as it is, like everything in the environment that
            // is.
            let value = parts.next().map(own);
            let kept = || (std::env::var_os(&name)).filter(|_| !inherit.passes(&name));
            if let Some(value) = value.or_else(kept) {
                environment.push((name, value));
            }
        }
        if let Some((bad, _)) = environment.iter().find(|(n, _)| {
            let name = n.to_string_lossy();
            name.is_empty() || name.contains('=')
        }) {
            let bad = bad.to_string_lossy();
            return Err(format!(
                "'{bad}' cannot be the name of an environment variable; write: -env NAME VALUE"
            ));
        }
        job.programs.push(Program {
            ranks,
            command,
            arguments: words.collect(),
            process_type: options.process_type.unwrap_or(0),
            nodes: options.on.map(|NodeList(nodes)| nodes),
            directory: options.directory,
            inherit,
            environment,
            file: None,
        });
        let streams = options.streams;
        job.stdin = streams.stdin.unwrap_or(job.stdin);
        match streams.output {
            Some(OutputOption::Plain(output)) => job.output = output,
            Some(OutputOption::Labelled) => job.label = true,
            None => {}
        }
        job.label |= streams.label;
        job.capture.timestamps |= streams.timestamp;
        job.capture.merges |= streams.merge;
        job.capture.copies |= streams.tee;
        job.capture.output = streams.output_files.or(job.capture.output);
        job.capture.error = streams.error_files.or(job.capture.error);
        place(&mut job, options.placement);
        job.quiet |= streams.quiet;
        job.continue_on_failure |= options.end.continue_on_failure;
        job.on_deadlock = options.end.on_deadlock.unwrap_or(job.on_deadlock);
        let limit = options.end.timeout.map(|time| TimeLimit {
            time,
            from: "-timeout",
        });
        job.timeout = limit.or(job.timeout);
        job.recording = trace::recording(&options.record, &job.launcher)?.or(job.recording);
    }
    if job.recording.is_some() {
        for program in &mut job.programs {
            trace::set_variables(&mut program.environment);
        }
    }
    check(&job)?;
    Ok(job)
}

/// Checks choices that belong together.
fn check(job: &Job) -> Result<(), String> {
    let capture = &job.capture;
    if capture.copies && capture.output.is_none() && capture.error.is_none() {
        return Err(
            "-tee shows what goes to files; name them with -output-files or -error-files".into(),
        );
    }
    if capture.merges && capture.error.is_some() && capture.error != capture.output {
        return Err(
            "-merge-stderr-to-stdout leaves nothing for the files of standard error; leave it or -error-files out".into(),
        );
    }
    Ok(())
}

/// Returns how many ranks a program has, in whatever option or variable of other launchers the
/// user gives it.
///
/// # Errors
/// When two of these ways contradict each other.
fn ranks(options: &RunOptions, cores: Option<&[usize]>) -> Result<Option<u32>, String> {
    let mask = cores.map_or_else(cpu::affinity, <[_]>::to_vec);
    let parts = |unit| machine::parts(unit, &mask, machine::read).len();
    let map = options.placement.map_by.as_ref();
    let most = map.and_then(|map| map.most_ranks(parts));
    if let (Some(ranks), Some(most), Some(map)) = (options.ranks, most, map)
        && ranks > most
    {
        return Err(format!(
            "-n {ranks} and -map-by {}: this host takes {most} of them; leave one option out, or name more hosts (-host)",
            map.text()
        ));
    }
    let list = options.host.as_ref().or(options.host_file.as_ref());
    let slots = list.map(|list| list.ranks(cpu::usable_cores() as u32, None));
    Ok(options.ranks.or(most).or(options.ppn).or(slots))
}

/// The hosts that programs name, from the first to the last program.
#[derive(Default)]
struct Named {
    /// One of them is not this machine.
    is_on_several: bool,
    /// Not all programs name the same.
    differ: bool,
    /// The list of the program before, or of the first that names one.
    list: Option<HostList>,
}

impl Named {
    fn of(segments: &[RunOptions]) -> Named {
        let lists = || {
            let all = segments.iter();
            all.filter_map(|options| options.host.as_ref().or(options.host_file.as_ref()))
        };
        Named {
            is_on_several: lists().any(|list| !list.is_here()),
            differ: lists().any(|list| Some(list) != lists().next()),
            list: lists().next().cloned(),
        }
    }
}

/// Takes the hosts from a program's options, where some of the job are not this machine, and the
/// number of its ranks where it has none. A program that names no hosts has those of the one before
/// it, or of the first that names any.
fn on_hosts(job: &mut Job, named: &mut Named, options: &mut RunOptions) -> Result<(), String> {
    if !named.is_on_several {
        return Ok(());
    }
    let own = options.host.take().or(options.host_file.take());
    let names_own = own.is_some();
    named.list = own.or(named.list.take());
    let Some(list) = &named.list else {
        return Ok(());
    };
    // `-map-by ppr:N:node` is how Open MPI says it. The hosts are taken to be like this one.
    let parts = |unit| machine::parts(unit, &cpu::affinity(), machine::read).len();
    let map = options.placement.map_by.as_mut();
    let per_host = map.and_then(|map| {
        let ranks = map.most_ranks(parts);
        map.per = None;
        ranks
    });
    let per_host = options.ppn.or(per_host);
    let is_first = job.hosts.is_none();
    if is_first {
        let shell = match options.remote_shell.as_deref().map(str::split_whitespace) {
            Some(words) => words.map(OsString::from).collect(),
            None => Hosts::SHELL.map(OsString::from).to_vec(),
        };
        if shell.is_empty() {
            return Err(
                "-launcher-exec: it names no command; write: -launcher-exec 'ssh -x'".into(),
            );
        }
        let mut hosts = list.hosts(per_host, shell, options.ports);
        if options.start.least_loaded {
            if named.differ {
                return Err(
                    "-least-loaded is for one list of hosts, and programs name several".into(),
                );
            }
            let (list, lines) = by_load(hosts.list, &hosts.shell)?;
            hosts.list = list;
            for line in lines {
                let _ = writeln!(std::io::stderr(), "{}: {line}", job.launcher);
            }
        }
        let maps = [&options.placement.map_by, &options.placement.rank_by];
        let deals = |map: &Option<MapBy>| map.as_ref().is_some_and(|map| map.is_by_host);
        job.hosts = Some(Hosts {
            encrypts: options.encrypt,
            stages: options.start.stage,
            width: options.start.tree_width.unwrap_or(Hosts::WIDTH),
            deals: maps.into_iter().any(deals),
            ..hosts
        });
    }
    let counts = (is_first && job.programs.is_empty()) || (named.differ && names_own);
    options.ranks = options.ranks.or(counts.then(|| list.ranks(0, per_host)));
    if let Some(hosts) = job.hosts.as_mut().filter(|_| named.differ) {
        hosts.of_programs.push(list.places(per_host));
    }
    Ok(())
}

/// Returns what programs get of the launcher's environment where they say nothing of their own.
fn inherited_by_all(segments: &[RunOptions]) -> Inherit {
    let mut inherited = Inherit::All;
    for options in segments.iter().map(|segment| &segment.environment) {
        if let Some(Names(names)) = &options.genvlist {
            inherited = Inherit::Only(names.clone());
        } else if options.genvnone {
            inherited = Inherit::Only(Vec::new());
        } else if let Some(Names(names)) = &options.genvexcl {
            inherited = Inherit::Except(names.clone());
        }
    }
    inherited
}

/// Takes what a program's options say of cores, for the job.
fn place(job: &mut Job, options: PlacementOptions) {
    let layout = &mut job.layout;
    let map = options.map_by.unwrap_or_default();
    let round = options.rank_by.and_then(|map| map.round);
    layout.round = map.round.or(round).or(layout.round);
    layout.no_oversubscription |= options.no_oversubscription || map.no_oversubscription;
    layout.gpus = options.gpus.or(layout.gpus);
    let list = options.cpu_set.map(|CoreList(list)| list);
    match map.list {
        Some(list) if map.is_ordered => job.binding = Binding::List(list),
        map => layout.cores = list.or(map).or(layout.cores.take()),
    }
    if let Some(bind) = options.bind {
        job.binding = bind.binding;
        layout.may_overload = bind.may_overload;
    }
    // A number of cores says how many a rank is bound to, unless it is not to be bound to cores.
    if let Some(each) = options.cores_per_rank.or(map.cores)
        && matches!(job.binding, Binding::Auto | Binding::Core)
    {
        job.binding = if each == 1 {
            Binding::Core
        } else {
            Binding::Cores(each)
        };
    }
    job.report_bindings |= options.report_bindings;
    job.tell.map |= options.display_map;
    job.tell.allocation |= options.display_allocation;
}

/// The variable of the environment that sets the time limit where no option does.
pub const ENV_TIMEOUT: &str = "MPIEXEC_TIMEOUT";

/// The variable of the processes of a job of the queue that says how many tasks it has.
pub const ENV_TASKS: &str = "MARGAY_JOB_TASKS";

/// Gives a program for which nothing says how many ranks it has those of [`ENV_TASKS`], whose
/// value is `text`. Of several programs each has one without that.
///
/// # Errors
/// When the value is no number of ranks.
pub fn with_tasks(mut job: Job, text: Option<&str>) -> Result<Job, String> {
    if let ([program], None, Some(text)) = (job.programs.as_mut_slice(), &job.hosts, text)
        && program.ranks.is_none()
    {
        let tasks =
            crate::values::ranks(text).map_err(|why| format!("{ENV_TASKS} is '{text}': {why}"))?;
        program.ranks = Some(tasks);
    }
    Ok(job)
}

/// Gives a job without a time limit the one of [`ENV_TIMEOUT`], whose value is `text`.
///
/// # Errors
/// When that is no time.
pub fn with_time_limit(mut job: Job, text: Option<&str>) -> Result<Job, String> {
    if let (None, Some(text)) = (job.timeout, text.filter(|text| !text.is_empty())) {
        let time = seconds(text).map_err(|why| format!("{ENV_TIMEOUT} is '{text}': {why}"))?;
        job.timeout = Some(TimeLimit {
            time,
            from: ENV_TIMEOUT,
        });
    }
    Ok(job)
}

fn pairs(words: &[OsString]) -> Vec<(OsString, OsString)> {
    words
        .chunks_exact(2)
        .map(|p| (p[0].clone(), p[1].clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::options::{margay_command, mesh_command, one_line, run_command};
    use clap::FromArgMatches;
    use margay_job_launch::plan::{Capture, Gpus, Output, StdinTo, Unit};

    fn parsed(line: &str) -> Result<Job, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let mut command = run_command("mpiexec");
        let segments = crate::single_dash::segments(&mut command, words)?
            .into_iter()
            .map(|segment| {
                let words = std::iter::once(OsString::from("mpiexec")).chain(segment);
                command
                    .try_get_matches_from_mut(words)
                    .and_then(|m| RunOptions::from_arg_matches(&m))
                    .map_err(|e| one_line(&e, "mpiexec"))
            })
            .collect::<Result<Vec<_>, String>>()?;
        of_segments("mpiexec", segments)
    }

    #[test]
    fn the_definitions_are_sound() {
        run_command("mpiexec").debug_assert();
        mesh_command("showmesh").debug_assert();
        margay_command().debug_assert();
    }

    #[test]
    fn a_job_of_the_queue_says_how_many_ranks_if_nothing_else_does() {
        let ranks =
            |line: &str, text| with_tasks(parsed(line).unwrap(), text).unwrap().programs[0].ranks;
        assert_eq!(ranks("a", Some("3")), Some(3));
        assert_eq!(ranks("-n 2 a", Some("3")), Some(2));
        assert_eq!(ranks("a : b", Some("3")), None);
        assert_eq!(ranks("a", None), None);
        assert!(with_tasks(parsed("a").unwrap(), Some("x")).is_err());
    }

    #[test]
    fn every_way_to_tell_the_ranks() {
        for line in [
            "-n 3 a", "-np 3 a", "--np 3 a", "-sz 3 a", "--n 3 a", "-c 3 a", "-n3 a", "--np=3 a",
        ] {
            assert_eq!(parsed(line).unwrap().programs[0].ranks, Some(3), "{line}");
        }
        assert_eq!(parsed("a").unwrap().programs[0].ranks, None);
        for line in ["-n 0 a", "-n -3 a", "-n x a", "-n 99999999999 a", "-n"] {
            let error = parsed(line).unwrap_err();
            assert!(
                !error.contains('\n') && error.contains("mpiexec --help"),
                "{error}"
            );
        }
    }

    #[test]
    fn programs_keep_their_own_options() {
        let job = parsed("-n 1 -wdir /usr -env A 1 a -n 9 : -genv G 2 -n 2 b -l").unwrap();
        let [a, b] = &job.programs[..] else {
            panic!("{job:?}")
        };
        assert_eq!((a.ranks, b.ranks), (Some(1), Some(2)));
        assert_eq!(a.arguments, ["-n", "9"]);
        assert_eq!(a.directory.as_deref(), Some(Path::new("/usr")));
        assert_eq!(
            a.environment,
            [("G".into(), "2".into()), ("A".into(), "1".into())]
        );
        assert_eq!(b.environment, [("G".into(), "2".into())]);
        assert!(!job.label);
    }

    #[test]
    fn choices() {
        let job = parsed("-l -bind none -stdin all -output ordered -timeout 1.5 -x A=b=c -x B a")
            .unwrap();
        assert!(job.label);
        assert_eq!(job.binding, Binding::None);
        assert_eq!(job.stdin, StdinTo::All);
        assert_eq!(job.output, Output::Ordered);
        assert_eq!(job.timeout.unwrap().time, Duration::from_millis(1500));
        assert_eq!(job.programs[0].environment, [("A".into(), "b=c".into())]);
        assert_eq!(parsed("-output rank:3 a").unwrap().output, Output::Rank(3));
        assert_eq!(
            parsed("-bind 1,0 a").unwrap().binding,
            Binding::List(vec![1, 0])
        );
        let peers = "--oversubscribe --allow-run-as-root --bind-to core -genvall -ppn 2 a";
        assert_eq!(parsed(peers).unwrap().binding, Binding::Core);
    }

    #[test]
    fn the_environment_limits_the_time_where_no_option_does() {
        let job = parsed("a").unwrap();
        let limited = with_time_limit(job.clone(), Some("10")).unwrap();
        let limit = limited.timeout.unwrap();
        assert_eq!((limit.time.as_secs(), limit.from), (10, "MPIEXEC_TIMEOUT"));
        for none in [None, Some("")] {
            assert_eq!(with_time_limit(job.clone(), none).unwrap().timeout, None);
        }
        let error = with_time_limit(job, Some("soon")).unwrap_err();
        assert!(error.starts_with("MPIEXEC_TIMEOUT is 'soon': "), "{error}");
        let job = parsed("-timeout 3 a").unwrap();
        let limited = with_time_limit(job, Some("soon")).unwrap();
        assert_eq!(limited.timeout.unwrap().time.as_secs(), 3);
    }

    #[test]
    fn hosts_make_a_job_on_several_unless_all_are_this_machine() {
        let job = parsed("-host localhost:2 -ppn 3 a").unwrap();
        assert_eq!((job.hosts, job.programs[0].ranks), (None, Some(3)));
        for (line, ranks, list) in [
            (
                "-host localhost,far a",
                2,
                vec![("localhost", 1), ("far", 1)],
            ),
            ("-host a,b -ppn 3 a", 6, vec![("a", 3), ("b", 3)]),
            (
                "-host a,b:2 --map-by ppr:2:node -n 3 a",
                3,
                vec![("a", 2), ("b", 2)],
            ),
        ] {
            let job = parsed(line).unwrap();
            let hosts = job.hosts.unwrap();
            let list: Vec<_> = list.into_iter().map(|(n, p)| (n.to_owned(), p)).collect();
            assert_eq!(
                (job.programs[0].ranks, hosts.list),
                (Some(ranks), list),
                "{line}"
            );
        }
        let hosts = parsed("-host far -launcher-exec rsh a").unwrap().hosts;
        assert_eq!(hosts.unwrap().shell, ["rsh"]);
        let parsed = parsed("-host a,b:2 x : -n 1 y : -host c -n 2 z").unwrap();
        let counts: Vec<u32> = parsed.programs.iter().map(|p| p.ranks.unwrap()).collect();
        assert_eq!(counts, [3, 1, 2]);
        let (names, of_rank) = parsed.hosts.unwrap().assign(&counts);
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(of_rank, [0, 1, 1, 0, 2, 2]);
    }

    #[test]
    fn errors_are_one_line() {
        for line in [
            "",
            "-n 2",
            "-nonsense a",
            "-output x a",
            "-stdin x a",
            "-timeout 0 a",
            "-bind x a",
            "-env =A 1 a",
            "-wdir",
        ] {
            let error = parsed(line).unwrap_err();
            assert!(!error.contains('\n') && error.len() > 20, "{line}: {error}");
        }
    }

    #[test]
    fn every_launchers_way_to_say_how_many_ranks() {
        for (line, ranks) in [
            ("-npernode 3 a", 3),
            ("-N 3 a", 3),
            ("-ppn 3 a", 3),
            ("-perhost 3 a", 3),
            ("-ppn 2 -n 4 a", 4),
            ("-pernode a", 1),
            ("-host localhost:3 a", 3),
            ("-H localhost,localhost a", 2),
            ("-H localhost:2 -n 5 a", 5),
            ("--map-by ppr:2:node a", 2),
            ("--map-by ppr:2:node:OVERSUBSCRIBE -np 2 a", 2),
            ("-H localhost:8 -npernode 2 a", 2),
        ] {
            assert_eq!(
                parsed(line).unwrap().programs[0].ranks,
                Some(ranks),
                "{line}"
            );
        }
        for line in ["-npernode 2 -n 4 a", "--map-by ppr:1:node -np 2 a"] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains("name more hosts"), "{error}");
        }
        let error = parsed("-npernode x a").unwrap_err();
        assert_eq!(error, "'-npernode' x: this is not a number of ranks");
    }

    #[test]
    fn every_launchers_way_to_bind() {
        for (line, binding) in [
            ("--bind-to socket a", Binding::Unit(Unit::Socket)),
            ("--bind-to hwthread a", Binding::Core),
            ("-bind-to core:2 a", Binding::Cores(2)),
            ("--map-by slot:PE=2 a", Binding::Cores(2)),
            ("--map-by socket:PE=2 --bind-to core a", Binding::Cores(2)),
            ("--map-by slot:PE=2 --bind-to none a", Binding::None),
            ("--cpus-per-proc 2 a", Binding::Cores(2)),
            ("--cpus-per-rank 1 a", Binding::Core),
            ("--depth=4 --cpu-bind depth a", Binding::Cores(4)),
            ("-bind-to user:1,0 a", Binding::List(vec![1, 0])),
            ("--map-by pe-list=1,0:ordered a", Binding::List(vec![1, 0])),
            ("--bind-to-core a", Binding::Core),
            ("--mca hwloc_base_binding_policy none a", Binding::None),
            ("a", Binding::Auto),
        ] {
            assert_eq!(parsed(line).unwrap().binding, binding, "{line}");
        }
        let job = parsed("--map-by socket --bind-to core:overload-allowed --cpu-set 0,1 -nooversubscribe -gpus 2 a").unwrap();
        let layout = job.layout;
        assert_eq!(
            (layout.round, layout.cores),
            (Some(Unit::Socket), Some(vec![0, 1]))
        );
        assert_eq!(layout.gpus, Some(Gpus::Number(2)));
        assert!(layout.may_overload && layout.no_oversubscription);
        assert_eq!(parsed("-gpus a").unwrap().layout.gpus, Some(Gpus::Found));
        assert_eq!(
            parsed("--rank-by numa a").unwrap().layout.round,
            Some(Unit::Numa)
        );
    }

    #[test]
    fn every_launchers_way_to_pass_the_environment() {
        let inherit = |line: &str| parsed(line).unwrap().programs[0].inherit.clone();
        let names = |names: &[&str]| names.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(inherit("-genvall a"), Inherit::All);
        assert_eq!(
            inherit("-genvlist A,B a"),
            Inherit::Only(names(&["A", "B"]))
        );
        assert_eq!(
            inherit("-genvlist A -envlist B a"),
            Inherit::Only(names(&["B"]))
        );
        assert_eq!(inherit("-genvnone a"), Inherit::Only(Vec::new()));
        assert_eq!(inherit("-genvexcl A a"), Inherit::Except(names(&["A"])));
        let job = parsed("-genv A=b -genv C d -env E=f=g a").unwrap();
        let expected = [("A", "b"), ("C", "d"), ("E", "f=g")];
        let expected = expected.map(|(n, v)| (OsString::from(n), OsString::from(v)));
        assert_eq!(job.programs[0].environment, expected);
    }

    #[test]
    fn every_launchers_way_to_show_and_keep_output() {
        let job = parsed("--tag-output --timestamp-output --merge-stderr-to-stdout -outfile-pattern o.%r -errfile-pattern=o.%r a").unwrap();
        let expected = Capture {
            output: Some("o.%r".into()),
            error: Some("o.%r".into()),
            copies: false,
            merges: true,
            timestamps: true,
        };
        assert!(job.label);
        assert_eq!(job.capture, expected);
        assert!(parsed("--output-filename d a").unwrap().capture.copies);
        for line in ["-tee a", "-merge-stderr-to-stdout -error-files x a"] {
            assert!(parsed(line).is_err(), "{line}");
        }
        for line in ["-v a", "--display map,allocation,bind a"] {
            let job = parsed(line).unwrap();
            assert!(
                job.tell.map && job.tell.allocation && job.report_bindings,
                "{line}"
            );
        }
    }
}
