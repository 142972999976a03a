//! The commands and the verbs are one to one.

use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser as _};
use nas_types::verb::{STREAMED, VERBS};

use crate::cli::{Cli, Command, MountVerb};

/// Goal: a verb without a command, or a command without a verb, fails here.
#[test]
fn every_verb_has_a_command() {
    let tree = Cli::command();
    let mut commands = BTreeSet::new();
    for noun in tree.get_subcommands() {
        for verb in noun.get_subcommands() {
            commands.insert(format!("{}/{}", noun.get_name(), verb.get_name()));
        }
    }
    let verbs: BTreeSet<String> = VERBS.iter().chain(STREAMED).map(|v| v.0.to_owned()).collect();
    assert_eq!(commands, verbs);
}

#[test]
fn the_tree_is_well_formed() {
    Cli::command().debug_assert();
}

/// Goal: nobody can see a passphrase in the list of processes or in an environment.
#[test]
fn passphrases_are_no_arguments() {
    fn check(command: &clap::Command) {
        for arg in command.get_arguments() {
            let name = arg.get_id().as_str();
            assert!(name != "passphrase" && name != "token" && name != "bootstrap", "{name} in {}", command.get_name());
            let env = arg.get_env().map(|e| e.to_string_lossy().into_owned());
            assert!(matches!(env.as_deref(), None | Some("NAS_URL")), "{name} comes from {env:?}");
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn the_transcript_parses() {
    for line in [
        "nas tree import ./some/real/project --into /shared/launch",
        "nas lease create --role cleo --paths /shared/launch/** --actions list,read,write,propose --ttl 4h",
        "nas mount --lease lse_23456789abcd /work",
        "nas propose --into main --why Draft",
        "nas gate show gt_23456789abcd",
        "nas gate approve gt_23456789abcd",
        "nas explain 91ce3a7",
        "nas explain commit 91ce3a7 --json",
        "nas record verify",
        "nas record verify --anchor 3:ab",
        "nas status --json",
        "nas unmount /work",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
    for line in [
        "nas gate show lse_23456789abcd",
        "nas lease create --role cleo --paths /a --actions fly",
        "nas lease create --role Cleo --paths /a --actions read",
        "nas tree import . --into relative",
        "nas tree import . --into /a/../b",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn mount_is_a_verb_and_a_noun() {
    for line in ["nas mount --lease lse_23456789abcd ticket --read-only", "nas mount ticket --read-only"] {
        let Command::Mount(args) = parse(line).unwrap().command else { panic!("{line}") };
        assert!(matches!(args.verb, Some(MountVerb::Ticket(view)) if view.read_only), "{line}");
    }
    let Command::Mount(args) = parse("nas mount --read-only ./ticket").unwrap().command else { panic!() };
    assert!(args.verb.is_none() && args.view.read_only);
    assert_eq!(args.dir.unwrap().to_str(), Some("./ticket"));
}

#[test]
fn lists_have_commas() {
    let line = "nas lease create --role cleo --paths /a/**,/b --paths /c --actions read,write";
    let Command::Lease(crate::cli::LeaseVerb::Create(args)) = parse(line).unwrap().command else { panic!() };
    assert_eq!(args.paths, ["/a/**", "/b", "/c"]);
    assert_eq!(args.actions.len(), 2);
}
