//! Links between pages: each relative link leads to a file, and to a heading when it names one.
//! This holds in the checkout and, for pages that are installed, in the installed tree.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{File, Finding};
use crate::layout;

/// Pages that a program writes: their links are not checked.
const GENERATED: &str = "bench/results/";

/// A page: its links with their lines, and the anchors of its headings.
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

/// Checks all pages of the project.
pub fn check(files: &[File]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let installed: BTreeSet<String> = paths
        .iter()
        .filter_map(|path| layout::installed(path))
        .collect();
    let pages: BTreeMap<&str, Page> = files
        .iter()
        .filter(|file| file.path.ends_with(".md") && !file.path.starts_with(GENERATED))
        .map(|file| (file.path.as_str(), read(file.text.as_deref().unwrap_or(""))))
        .collect();
    let mut findings = Vec::new();
    for (&path, page) in &pages {
        for (line, link) in &page.links {
            if let Some(broken) = broken(path, link, &paths, &installed, &pages) {
                findings.push(Finding::new(path, *line, broken));
            }
        }
    }
    findings
}

/// Returns what is wrong with a link of the page at `path`; `None` when it leads somewhere.
fn broken(
    path: &str,
    link: &str,
    paths: &BTreeSet<&str>,
    installed: &BTreeSet<String>,
    pages: &BTreeMap<&str, Page>,
) -> Option<String> {
    if ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| link.starts_with(scheme))
    {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        path.to_owned()
    } else {
        match resolve(path, file) {
            Some(target) if paths.contains(target.as_str()) => target,
            _ => return Some(format!("the link {link} leads to no file of the checkout")),
        }
    };
    if !anchor.is_empty() {
        let there = pages
            .get(target.as_str())
            .is_some_and(|page| page.anchors.contains(anchor));
        if !there {
            return Some(format!("the link {link} names no heading of {target}"));
        }
    }
    let place = layout::installed(path)?;
    if layout::is_of_developers(&target) {
        // The installed page has its words without the link.
        return None;
    }
    let found = file.is_empty() || resolve(&place, file).is_some_and(|to| installed.contains(&to));
    (!found).then(|| {
        format!(
            "the link {link} leads to no file of the installed tree, where this page is {place}; \
             install the file at the same relative place (`layout::installed`)"
        )
    })
}

/// Returns the text of a page as it is installed: links to pages that are not are their words.
#[must_use]
pub fn for_users(path: &str, text: &str) -> String {
    let mut out = String::new();
    let mut rest = 0;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. }) = event else {
            continue;
        };
        let file = dest_url.split('#').next().unwrap_or_default();
        let target = resolve(path, file).filter(|target| layout::is_of_developers(target));
        let link = &text[range.clone()];
        let words = link.strip_prefix('[').zip(link.rfind("]("));
        if let (Some(_), Some((_, end))) = (target, words) {
            out += &text[rest..range.start];
            out += &link[1..end];
            rest = range.end;
        }
    }
    out + &text[rest..]
}

/// Returns the path that a relative link of the file `from` means; `None` when it is absolute or
/// leaves the tree.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn read(text: &str) -> Page {
    let mut page = Page {
        links: Vec::new(),
        anchors: BTreeSet::new(),
    };
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = text[..range.start].matches('\n').count() + 1;
                page.links.push((line, dest_url.into_string()));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let again = (1..).map(|n| format!("{anchor}-{n}"));
                let free = std::iter::once(anchor.clone())
                    .chain(again)
                    .find(|name| !page.anchors.contains(name));
                page.anchors.extend(free);
            }
            _ => {}
        }
    }
    page
}

/// Returns the anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn house(pages: &[(&str, &str)]) -> Vec<File> {
        pages
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                text: Some((*text).to_owned()),
                executable: false,
            })
            .collect()
    }

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        check(&house(pages))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_in_order() {
        let pages = [
            (
                "README.md",
                "# X\n[a](docs/a.md#two-words-mpi_send) [b](https://example.org) [c](#x)\n![p](docs/p.svg)",
            ),
            (
                "docs/a.md",
                "# A\n## Two words: `MPI_Send`\n[r](../README.md) [e](../run/engine/README.md)",
            ),
            ("docs/p.svg", ""),
            (
                "run/engine/README.md",
                "# E\n## Same\n## Same\n[a](../../docs/a.md) [s](#same-1)",
            ),
        ];
        assert_eq!(found(&pages), Vec::<String>::new());
    }

    #[test]
    fn a_link_to_no_file_is_found_with_its_line() {
        let pages = [("README.md", "# X\n\nwords [a](docs/none.md)")];
        assert_eq!(
            found(&pages),
            ["README.md:3: the link docs/none.md leads to no file of the checkout"]
        );
        for link in ["/etc/passwd", "../outside.md", "docs"] {
            let text = format!("[a]({link})");
            assert_eq!(found(&[("README.md", &text), ("docs/a.md", "")]).len(), 1);
        }
    }

    #[test]
    fn a_link_to_no_heading_is_found() {
        let pages = [
            ("README.md", "[a](docs/a.md#b) [c](#d)"),
            ("docs/a.md", "# A"),
        ];
        assert_eq!(
            found(&pages),
            [
                "README.md:1: the link #d names no heading of README.md",
                "README.md:1: the link docs/a.md#b names no heading of docs/a.md",
            ]
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_link_that_is_broken_once_installed_is_found() {
        // Both files are in the checkout. Sources are not installed, examples lie elsewhere.
        for target in ["sys/src/lib.rs", "examples/hello.c"] {
            let text = format!("[a]({target})");
            let findings = found(&[("README.md", &text), (target, "")]);
            assert_eq!(findings.len(), 1);
            assert!(
                findings[0].contains("leads to no file of the installed tree"),
                "{findings:?}"
            );
        }
    }

    #[test]
    fn an_installed_page_has_no_links_to_pages_of_developers() {
        let text = "| [a `b`](../ARCHITECTURE.md#c) | [d](e.md) |\n[f](../run/x/README.md), `[g](../ARCHITECTURE.md)`\n";
        assert_eq!(
            for_users("docs/h.md", text),
            "| a `b` | [d](e.md) |\nf, `[g](../ARCHITECTURE.md)`\n"
        );
        assert_eq!(layout::installed("ARCHITECTURE.md"), None);
    }

    #[test]
    fn a_link_in_a_code_block_is_text() {
        assert!(found(&[("README.md", "```\n[a](none.md)\n```\n`[b](none.md)`")]).is_empty());
    }
}
