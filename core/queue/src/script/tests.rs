use super::*;
use crate::job::{After, Dependency, TaskDependency};
use crate::wishes::Joined;

#[test]
fn slurm_lines_are_read_up_to_the_first_command() {
    let script = "#!/bin/bash\n# a remark\n#SBATCH -n4 --time=1:00:00 # so long\n\n#SBATCH --job-name \"a b\" -o out/%x-%j.txt\n\
        #SBATCH --array=0-3%2\n#SBATCH --dependency=afterok:5:6,afterany:7\n#SBATCH --signal=B:USR1@120\n#SBATCH --mem=4G\n\
        ##SBATCH -n 99\n#SBATCHX\necho\n#SBATCH --nonsense\n";
    let wishes = wishes(script).unwrap();
    assert_eq!(wishes.dialect, Some(Dialect::Slurm));
    assert_eq!(wishes.size.tasks, Some(4));
    assert_eq!(wishes.size.memory_mib, Some(4096));
    assert_eq!(wishes.limit_s, Some(Some(3600)));
    assert_eq!(wishes.name.as_deref(), Some("a b"));
    assert_eq!(wishes.output.stdout.as_deref(), Some("out/%x-%j.txt"));
    assert_eq!(wishes.array.unwrap().limit, Some(2));
    let after = Dependency::on;
    assert_eq!(
        wishes.after,
        [
            after(After::Ok, 5),
            after(After::Ok, 6),
            after(After::Any, 7)
        ]
    );
    let warning = wishes.warning.unwrap();
    assert_eq!(
        (warning.signal, warning.before_s, warning.to_script),
        (10, 120, true)
    );
}

#[test]
fn pbs_lines_are_read() {
    let script = "#!/bin/sh\n#PBS -N name\n#PBS -l nodes=2:ppn=4,walltime=00:10:00\n#PBS -j oe\n#PBS -o host:/a/b\n\
        #PBS -W depend=afterok:12.host\n#PBS -V\n#PBS -t 1-3\n#PBS -q batch\n";
    let wishes = wishes(script).unwrap();
    assert_eq!(wishes.dialect, Some(Dialect::Pbs));
    assert_eq!((wishes.size.nodes, wishes.size.slots(64)), (Some(2), 8));
    assert_eq!(wishes.limit_s, Some(Some(600)));
    assert_eq!(wishes.output.joined, Some(Joined::Stdout));
    assert_eq!(wishes.output.stdout.as_deref(), Some("/a/b"));
    assert_eq!(wishes.after[0].job, 12);
    let select =
        super::wishes("#PBS -l select=2:ncpus=8:mpiprocs=2:mem=1gb:ompthreads=4\n").unwrap();
    assert_eq!((select.size.tasks(), select.size.slots(64)), (4, 16));
    assert_eq!(select.size.memory_mib, Some(2048));
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    for (script, named) in [
        (
            "#SBATCH -n 2\n#SBATCH --gres=gpu:1\n",
            "line 2: --gres=gpu:1",
        ),
        ("#SBATCH -n x\n", "line 1: -n x"),
        ("#SBATCH -n\n", "line 1: -n needs a value"),
        ("#SBATCH stray\n", "'stray'"),
        ("#SBATCH --exclusive=mcs\n", "--exclusive mcs"),
        (
            "#SBATCH -C haswell\n",
            "-C=haswell is not supported: nodes have no features",
        ),
        ("#SBATCH --gres=gpu:2\n", "GPUs"),
        ("#SBATCH hetjob\n", "heterogeneous"),
        ("#SBATCH -J \"a\n", "quotation"),
        ("#SBATCH --mail-type=SOON\n", "--mail-type SOON"),
        ("#SBATCH -t never\n", "'never'"),
        ("#PBS -I\n", "-I"),
        ("#PBS -l software=x\n", "-l software x"),
        ("#PBS -l nodes=1:gpus=2\n", "nodes"),
        ("#PBS -l select=1:ncpus=1+2:ncpus=2\n", "chunks"),
        ("#PBS -W stagein=x\n", "-W stagein=x"),
        ("#PBS -m xyz\n", "-m xyz"),
        ("#PBS -N a\n#SBATCH -n 1\n", "line 2: lines of two"),
        ("#BSUB -n 4\n", "LSF"),
        ("# @ job_type = parallel\n", "# @ queue"),
        ("# @ queue\n# @ queue\n", "llsubmit"),
        ("#SBATCH -d afterok\n", "afterok"),
    ] {
        let error = wishes(script).unwrap_err();
        assert!(error.contains(named), "{script}: {error}");
    }
}

#[test]
fn an_option_may_stand_directly_behind_the_name() {
    let wishes = wishes("#!/bin/sh\n#SBATCH--time=20:00:00\n##SBATCH -n 3\n#SBATCHES\n").unwrap();
    assert_eq!(
        (wishes.limit_s, wishes.size.tasks),
        (Some(Some(72_000)), None)
    );
}

#[test]
fn tasks_of_arrays_are_named_as_each_system_does() {
    let of = |line: &str| wishes(&format!("#!/bin/sh\n{line}\n")).map(|w| (w.after, w.after_tasks));
    let task = |after, array, task| TaskDependency { after, array, task };
    let (after, tasks) = of("#SBATCH -d afterok:3:12_4,aftercorr:7").unwrap();
    assert_eq!(after, [Dependency::on(After::Ok, 3)]);
    assert_eq!(
        tasks,
        [task(After::Ok, 12, Some(4)), task(After::Ok, 7, None)]
    );
    let (after, tasks) = of("#PBS -W depend=afterany:5[].host:6[2].host").unwrap();
    assert_eq!(after, [Dependency::on(After::Any, 5)]);
    assert_eq!(tasks, [task(After::Any, 6, Some(2))]);
    for wrong in ["afterok:1_x", "afterok:1?afterok:2", "aftercorr"] {
        assert!(of(&format!("#SBATCH -d {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn who_asks_for_no_gpus_needs_none() {
    for line in [
        "--gpus=0",
        "--gpus-per-task=0",
        "--gres=gpu:0",
        "--gres=none",
    ] {
        assert!(
            wishes(&format!("#!/bin/sh\n#SBATCH {line}\n")).is_ok(),
            "{line}"
        );
    }
    assert!(wishes("#!/bin/sh\n#SBATCH --gres=gpu:10\n").is_err());
}

#[test]
fn a_singleton_may_have_other_dependencies() {
    let of = |value: &str| wishes(&format!("#!/bin/sh\n#SBATCH -d {value}\n")).unwrap();
    let alone = of("singleton");
    assert!(alone.is_singleton && alone.after.is_empty());
    let both = of("afterok:3,singleton");
    assert!(both.is_singleton && both.after.len() == 1 && both.after[0].job == 3);
    assert!(wishes("#!/bin/sh\n#PBS -W depend=singleton\n").is_err());
}

#[test]
fn lines_of_nqs_and_loadleveler_are_read() {
    let script =
        "#!/bin/sh\n# QSUB -lT 3600,3500 -lM 64mb\n#QSUB -lP 4 -eo -r name\n#@$-q batch\necho\n";
    let nqs = wishes(script).unwrap();
    assert_eq!((nqs.size.tasks(), nqs.limit_s), (4, Some(Some(3600))));
    assert_eq!(nqs.size.memory_mib, Some(64));
    assert_eq!(
        (nqs.name.as_deref(), nqs.partition.as_deref()),
        (Some("name"), Some("batch"))
    );
    let script = "#!/bin/sh\n# @ node = 2\n# @ tasks_per_node = 2\n# @ cpus_per_task = 3\n\
                  # @ island_count = 1\n# @ queue\n";
    let loadleveler = wishes(script).unwrap();
    assert_eq!(loadleveler.dialect, Some(Dialect::LoadLeveler));
    assert_eq!(loadleveler.size.tasks(), 4);
    assert_eq!(loadleveler.size.cpus_per_task, Some(3));
}

#[test]
fn keywords_of_the_first_loadleveler_are_read() {
    let of = |lines: &str| wishes(&format!("#!/bin/ksh\n{lines}# @ queue\n"));
    let found = of("# @ min_processors = 4\n# @ max_processors = 8\n\
                    # @ requirements = (Adapter == \"hps_user\") && (Memory >= 512)\n")
    .unwrap();
    assert_eq!(found.size.tasks(), 4);
    assert_eq!(found.size.memory_mib, Some(512));
    assert_eq!(of("# @ max_processors = 8\n").unwrap().size.tasks(), 8);
    let why = of("# @ requirements = (Pool == 2)\n").unwrap_err();
    assert!(why.contains("(Pool == 2) is not supported"), "{why}");
}

#[test]
fn options_of_commands_end_at_the_first_word_that_is_none() {
    const OWN: &[super::slurm::Known] = &[(' ', "wrap", super::slurm::Takes::Value)];
    let words: Vec<String> = [
        "-HQn", "2", "--time=5", "--par", "p", "--wrap", "x y", "a.sh", "-n3",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut wishes = super::Wishes::default();
    let line = super::slurm::command(&words, OWN, &mut wishes).unwrap();
    assert_eq!((line.end, line.value("wrap")), (7, Some("x y")));
    assert_eq!((wishes.size.tasks, wishes.is_held), (Some(2), Some(true)));
    assert_eq!(wishes.partition.as_deref(), Some("p"));
    let words: Vec<String> = ["-Iz", "-lnodes=1:ppn=2", "-v", "A='b,c',D", "job", "-n"]
        .map(str::to_owned)
        .to_vec();
    let mut wishes = super::Wishes::default();
    let line = super::pbs::command(&words, &mut wishes).unwrap();
    assert!(line.end == 4 && line.is_interactive && line.is_silent);
    assert_eq!(line.names, ["D"]);
    assert_eq!(wishes.variables, [("A".into(), "b,c".into())]);
    assert_eq!(wishes.size.tasks(), 2);
}

#[test]
fn memory_has_fractions_and_words() {
    for (text, mib) in [
        ("4G", 4096),
        ("1.5gb", 1536),
        ("0.5m", 1),
        ("2Mw", 16),
        ("8.0Mw", 64),
        ("1gw", 8192),
        ("1048576b", 1),
        ("131072w", 1),
        ("3", 3),
    ] {
        assert_eq!(memory(text, 1 << 20), Some(mib), "{text}");
    }
    for text in ["", ".5g", "1.5.5g", "4x", "w", "99999999999999999999g"] {
        assert_eq!(memory(text, 1 << 20), None, "{text}");
    }
}

#[test]
fn a_command_reads_the_lines_of_its_own_system() {
    let script = "#!/bin/sh\n#SBATCH -n 3\n#PBS -l nodes=1:ppn=2\n#BSUB -n 9\n# @ class = x\n#$ -pe mpi 4\necho\n";
    let tasks = |dialect| {
        let wishes = wishes_for(script, dialect, "#PBS").unwrap();
        assert_eq!(wishes.dialect, Some(dialect));
        wishes.size.tasks()
    };
    assert_eq!((tasks(Dialect::Slurm), tasks(Dialect::Pbs)), (3, 2));
    let why = wishes(script).unwrap_err();
    assert!(why.contains("two batch systems"), "{why}");
    // One without lines of its own is read as what it is.
    let other = "#!/bin/sh\n#PBS -l nodes=1:ppn=2\n";
    let wishes = wishes_for(other, Dialect::Slurm, "#PBS").unwrap();
    assert_eq!(wishes.dialect, Some(Dialect::Pbs));
    let other = "#!/bin/sh\n#BSUB -n 9\n";
    assert!(wishes_for(other, Dialect::Slurm, "#PBS").is_err());
}

#[test]
fn options_of_qsub_stand_anywhere() {
    let first = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        pbs::options_first(&words).join(" ")
    };
    for (line, expected) in [
        ("a.pbs -v A=1", "-v A=1 a.pbs"),
        (
            "-l nodes=1 a.pbs -Nx -hz -j oe",
            "-l nodes=1 -Nx -hz -j oe a.pbs",
        ),
        ("-N n -- sleep -v 1", "-N n -- sleep -v 1"),
        ("a.pbs x -V y", "-V a.pbs x y"),
        ("-", "-"),
        ("a.pbs -N", "-N a.pbs"),
    ] {
        assert_eq!(first(line), expected);
    }
}
