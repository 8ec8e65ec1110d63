//! The page of a command from the definition of its options.

use clap::{Arg, ArgAction, Command};

use crate::page::{Item, Page};

/// Returns the page of a command; `name` is that of its file.
pub fn page(name: &str, definition: Command) -> Page {
    let mut definition = definition.disable_help_subcommand(true);
    definition.build();
    let about = definition.get_about().or(definition.get_long_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let mut page = Page::new(name, &about);
    let long = definition.get_long_about().map(ToString::to_string);
    page.description = paragraphs(&long.unwrap_or(about));
    let usage = definition.render_usage().to_string();
    page.synopsis = usage
        .trim_start_matches("Usage:")
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    for sub in definition.get_subcommands().filter(|s| !s.is_hide_set()) {
        let about = sub.get_about().map(ToString::to_string);
        let aliases: Vec<&str> = sub.get_visible_aliases().collect();
        let also = (!aliases.is_empty()).then(|| format!("Also called {}.", aliases.join(", ")));
        page.commands.push(Item {
            head: format!("{}-{}(1)", name, sub.get_name()),
            body: about.into_iter().chain(also).collect(),
        });
    }
    let shown = definition.get_arguments().filter(|arg| !arg.is_hide_set());
    for argument in shown {
        let items = match argument.is_positional() {
            true => &mut page.arguments,
            false => &mut page.options,
        };
        items.push(item(argument));
    }
    let notes = definition
        .get_after_long_help()
        .or(definition.get_after_help());
    page.notes = notes.map_or_else(Vec::new, |notes| paragraphs(&notes.to_string()));
    page
}

/// Splits a text at its empty lines.
fn paragraphs(text: &str) -> Vec<String> {
    let all = text.split("\n\n").map(|p| p.trim_end().to_owned());
    all.filter(|p| !p.is_empty()).collect()
}

fn item(argument: &Arg) -> Item {
    let help = argument.get_long_help().or(argument.get_help());
    let mut body = help.map_or_else(Vec::new, |help| paragraphs(&help.to_string()));
    if is_with_value(argument) {
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| match value.get_help() {
                Some(help) => format!("{} ({help})", value.get_name()),
                None => value.get_name().to_owned(),
            })
            .collect();
        if !values.is_empty() && !argument.is_hide_possible_values_set() {
            body.push(format!("Possible values: {}.", values.join(", ")));
        }
        let defaults: Vec<_> = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        if !defaults.is_empty() && !argument.is_hide_default_value_set() {
            body.push(format!("Default: {}.", defaults.join(",")));
        }
    }
    if let Some(variable) = argument.get_env() {
        let variable = variable.to_string_lossy();
        body.push(format!("Environment variable: {variable}."));
    }
    Item {
        head: head(argument),
        body,
    }
}

/// All names of an option, and its values as the help writes them.
fn head(argument: &Arg) -> String {
    if argument.is_positional() {
        return argument.to_string();
    }
    let mut names: Vec<String> = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    for alias in argument.get_visible_aliases().unwrap_or_default() {
        names.push(format!("--{alias}"));
    }
    let written = argument.to_string();
    // What stands behind the name: ` <VALUE>`, or `[=<VALUE>]`.
    let value = written
        .find([' ', '[', '='])
        .map_or("", |at| &written[at..]);
    names.join(", ") + value
}

fn is_with_value(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Set | ArgAction::Append | ArgAction::Count
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_what_the_help_shows() {
        let definition = Command::new("x")
            .bin_name("x")
            .about("Does x")
            .after_help("First.\n\nSecond.")
            .arg(
                Arg::new("a")
                    .short('a')
                    .long("all")
                    .visible_alias("everything")
                    .value_name("HOW")
                    .env("X_ALL")
                    .default_value("one")
                    .value_parser(["one", "two"])
                    .help("How much"),
            )
            .arg(Arg::new("h").long("hidden").hide(true))
            .arg(Arg::new("p").value_name("PROGRAM").required(true));
        let page = page("x", definition);
        assert_eq!(page.synopsis, ["x [OPTIONS] <PROGRAM>"]);
        let heads: Vec<&str> = page.options.iter().map(|o| o.head.as_str()).collect();
        assert_eq!(heads, ["-a, --all, --everything <HOW>", "-h, --help"]);
        assert_eq!(
            page.options[0].body,
            [
                "How much",
                "Possible values: one, two.",
                "Default: one.",
                "Environment variable: X_ALL."
            ]
        );
        assert_eq!(page.arguments[0].head, "<PROGRAM>");
        assert_eq!(page.notes, ["First.", "Second."]);
    }
}
