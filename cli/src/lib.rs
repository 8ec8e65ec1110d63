//! What the command `margay` is made of. A library, so that tests and fuzz targets reach the
//! parsers of options.
#![forbid(unsafe_code)]

pub mod account;
pub mod allocation;
pub mod bench;
pub mod check;
pub mod completions;
mod config_file;
pub mod foreign;
pub mod fortran;
pub mod hosts;
pub mod job;
pub mod job_files;
pub mod join;
pub mod join_options;
pub mod live;
pub mod load;
pub mod mapping;
pub mod markers_view;
pub mod mesh_groups;
pub mod mesh_live;
pub mod mesh_view;
pub mod omp;
pub mod options;
pub mod part;
pub mod part_options;
pub mod pfs;
pub mod poe;
pub mod profile_view;
pub mod queue;
mod queue_answer;
mod queue_head;
mod queue_machine;
pub mod queue_options;
pub mod queue_system;
pub mod single_dash;
pub mod system;
pub mod system_options;
pub mod threads_view;
pub mod trace;
pub mod values;
pub mod why_view;
